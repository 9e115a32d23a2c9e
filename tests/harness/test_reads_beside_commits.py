"""A read answers while a commit waits for its disk, and shows whole commits only."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pico_harness.harness import ROOT, Harness
from pico_harness.kinds import EntryKind
from pico_harness.state import conversation_list, conversation_value
from pico_store.backends import open_store
from pico_store.query import ConversationQuery, EntryQuery, TaskQuery

NOTE = EntryKind[str]("note")
SMALL = conversation_value("small", rewind=False)
MANY = conversation_list("many", rewind=False)

# Holds the write lock of a store's file, as a commit of another process does, until it is told.
HOLD = {
    "sqlite": """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
""",
    "lmdb": """
import lmdb, sys
environment = lmdb.open(sys.argv[1], max_dbs=64)
transaction = environment.begin(write=True)
print("held", flush=True)
sys.stdin.readline()
transaction.abort()
""",
}


@contextmanager
def write_lock(backend: str, path: Path) -> Iterator[None]:
    command = [sys.executable, "-c", HOLD[backend], str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield
        finally:
            process.communicate("go on\n")
        assert process.returncode == 0


@pytest.mark.parametrize("backend", sorted(HOLD))
def test_reads_do_not_wait_for_a_commit_that_waits(tmp_path: Path, backend: str) -> None:
    path = tmp_path / "store"

    async def main() -> None:
        with closing(open_store(f"{backend}:{path}?durability=power")) as store:
            harness = await Harness.open(store.create("a"))
            root = await harness.root()
            first = await root.commit(lambda tx: tx.entry(NOTE, "first"))
            await root.value(SMALL).set(1)
            with write_lock(backend, path):
                # The loop goes on by itself only if none of these waits for the lock.
                committing = asyncio.create_task(root.commit(lambda tx: tx.entry(NOTE, "second")))
                await asyncio.sleep(0)
                second = first + 2
                for _ in range(20):
                    assert (await harness.get_entry(first)) is not None
                    assert await root.value(SMALL).get() == 1
                    assert (await root.list(MANY).read()).items == []
                    page = await harness.entries(EntryQuery(conversation_id=ROOT))
                    assert [entry.id for entry in page.items] == [first]
                    assert not (await harness.tasks(TaskQuery(live=True))).items
                    assert len((await harness.conversations(ConversationQuery())).items) == 1
                    assert (await root.context()).ids == (first,)
                    assert (await harness.inspect()).last_seq == second - 1
                    assert not committing.done()
            assert await committing == second
            page = await harness.entries(EntryQuery(conversation_id=ROOT))
            assert [entry.id for entry in page.items] == [first, second]
            await harness.close()

    asyncio.run(main())
