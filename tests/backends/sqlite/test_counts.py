"""What reads of SQLite cost, in statements, decoded rows and steps of SQLite's machine.

A step is one instruction that SQLite runs for a statement: a scan takes more of them for every
row that it passes, so that equal steps on a short and a long history mean that nothing was passed
that the answer does not hold.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

import apsw
import pytest
from msgspec.structs import replace

from pico_sqlite.store import SqliteStore
from pico_store.address import ConversationAddress, Seq, SessionAddress
from pico_store.batch import ListAppend, ListRemove, MainBatch, SettleTask, ValueSet
from pico_store.query import BatchQuery, ConversationQuery, EntryQuery, ListQuery, TaskQuery
from pico_store.records import Conversation, Entry, ForkPoint, JsonObject, Task
from pico_store.storage import Storage

ROOT = Seq(1)
LIST = ConversationAddress(ROOT, "list", rewind=True)
SHORT, LONG = 150, 3_000
# Of the reads that a page makes beside its own: the newest batch, and live scratch.
READ_AT = 2


class Cost(NamedTuple):
    """What one read took."""

    queries: int
    rows: int
    steps: int


class Meter(Protocol):
    """Runs a read and says what it took."""

    def __call__(self, storage: Storage, read: Callable[[], object]) -> Cost: ...


class _Steps:
    def __init__(self) -> None:
        self.count = 0

    def watch(self, db: apsw.Connection) -> None:
        db.set_progress_handler(self._step, 1)

    def _step(self) -> bool:
        self.count += 1
        return False


@pytest.fixture
def cost() -> Iterator[Meter]:
    """A meter for every connection that the test opens."""
    steps = _Steps()

    def measure(storage: Storage, read: Callable[[], object]) -> Cost:
        counters = storage.counters
        before = (counters.queries, counters.rows_decoded, steps.count)
        read()
        after = (counters.queries, counters.rows_decoded, steps.count)
        return Cost(*(new - old for new, old in zip(after, before, strict=True)))

    apsw.connection_hooks.append(steps.watch)
    try:
        yield measure
    finally:
        apsw.connection_hooks.remove(steps.watch)


@pytest.fixture
def new_session(tmp_path: Path) -> Iterator[Callable[[str], Storage]]:
    stores: list[SqliteStore] = []

    def make(name: str) -> Storage:
        stores.append(SqliteStore(str(tmp_path / f"{name}.db")))
        storage = stores[-1].create(name)
        storage.commit(MainBatch((Conversation(id=ROOT),)))
        return storage

    yield make
    for store in stores:
        store.close()


def next_seq(storage: Storage, offset: int = 0) -> Seq:
    return Seq(storage.last_seq + 1 + offset)


def write_entries(storage: Storage, count: int, *, head: bool = False) -> list[Seq]:
    """Commit entries, a batch of two at a time; return their ids."""
    ids: list[Seq] = []
    for _ in range(0, count, 2):
        pair = (next_seq(storage), next_seq(storage, 1))
        user = Entry(id=pair[0], conversation_id=ROOT, kind="user", data={"text": "x" * 300})
        answer = Entry(
            id=pair[1],
            conversation_id=ROOT,
            kind="assistant",
            key="k",
            data=[],
            head=pair[0] if head else None,
        )
        storage.commit(MainBatch((user, answer)))
        ids += pair
    return ids


def fork_deep(storage: Storage, at: Seq, levels: int) -> Seq:
    """Fork, then fork the fork, and so on; return the last conversation."""
    conversation = ROOT
    for _ in range(levels):
        fork, entry = next_seq(storage), next_seq(storage, 1)
        storage.commit(
            MainBatch(
                (
                    Conversation(id=fork, parent=ForkPoint(conversation, at)),
                    Entry(id=entry, conversation_id=fork, kind="user"),
                )
            )
        )
        conversation, at = fork, entry
    return conversation


def new_task(id: Seq) -> Task:
    state: JsonObject = {"status": "new"}
    return Task(id=id, conversation_id=ROOT, kind="k", status="new", role="start", state=state)


def settle_tasks(storage: Storage, count: int) -> None:
    for _ in range(count):
        id = next_seq(storage)
        settled = SettleTask(id, "done", {"status": "done"})
        storage.commit(MainBatch((new_task(id), settled)))


NewSession = Callable[[str], Storage]
READS: dict[str, tuple[Callable[[Storage], object], int, int]] = {
    # By name: the read, its statements beside those of `read_at`, the rows it decodes. A
    # conversation's own row is one of each.
    "newest page": (
        lambda s: s.scan_entries(EntryQuery(conversation_id=ROOT, before=next_seq(s), limit=50)),
        2,
        51,
    ),
    "first page": (lambda s: s.scan_entries(EntryQuery(conversation_id=ROOT, limit=50)), 2, 51),
    "page at depth": (
        lambda s: s.scan_entries(EntryQuery(conversation_id=ROOT, before=Seq(90), limit=50)),
        2,
        51,
    ),
    "page of a kind": (
        lambda s: s.scan_entries(
            EntryQuery(conversation_id=ROOT, kind="user", before=next_seq(s), limit=20)
        ),
        2,
        21,
    ),
    "page of a key": (
        lambda s: s.scan_entries(
            EntryQuery(
                conversation_id=ROOT, kind="assistant", key="k", before=next_seq(s), limit=20
            )
        ),
        2,
        21,
    ),
    "page of one entry": (
        lambda s: s.scan_entries(EntryQuery(conversation_id=ROOT, from_=Seq(60), through=Seq(60))),
        2,
        2,
    ),
    "newest batches": (lambda s: s.scan_batches(BatchQuery(before=next_seq(s), limit=10)), 2, 0),
}


@pytest.mark.parametrize("name", READS)
def test_a_page_costs_the_same_on_any_history(
    name: str, cost: Meter, new_session: NewSession
) -> None:
    read, queries, rows = READS[name]
    costs = []
    for count in (SHORT, LONG):
        storage = new_session(str(count))
        write_entries(storage, count)
        costs.append(cost(storage, lambda storage=storage: read(storage)))  # type: ignore[misc]

    assert costs[0] == costs[1]
    assert costs[0].queries == queries + READ_AT
    assert costs[0].rows == rows


def test_a_large_batch_is_passed_once(cost: Meter, new_session: NewSession) -> None:
    """A page also tells the newest number, which the first row of the newest batch knows."""
    costs = []
    for size in (2, 5_000):
        storage = new_session(f"of {size}")
        note = Entry(id=Seq(0), conversation_id=ROOT, kind="note")
        first = next_seq(storage)
        storage.commit(MainBatch(tuple(replace(note, id=Seq(first + n)) for n in range(size))))
        page = partial(storage.scan_conversations, ConversationQuery())
        page()
        costs.append(cost(storage, page))
        assert page().read_at == first + size - 1
        storage.commit(MainBatch((ValueSet(SessionAddress("s"), 1),)))
        assert page().read_at == first + size
        storage.commit(MainBatch((replace(note, id=next_seq(storage)),)))
        assert page().read_at == first + size + 1

    assert costs[0] == costs[1]


def test_each_entry_that_is_asked_for_is_one_row(cost: Meter, new_session: NewSession) -> None:
    storage = new_session("session")
    ids = write_entries(storage, SHORT)

    for count in (1, 2, 10, 100):
        taken = cost(storage, lambda count=count: storage.get_entries(ids[:count]))  # type: ignore[misc]
        assert (taken.queries, taken.rows) == (count, count)
    assert cost(storage, lambda: storage.get_entries([Seq(10**6), Seq(0)])).rows == 0


@pytest.mark.parametrize("heads", [False, True])
def test_a_newest_head_is_one_row(heads: bool, cost: Meter, new_session: NewSession) -> None:  # noqa: FBT001
    costs = []
    for count in (SHORT, LONG):
        storage = new_session(str(count))
        write_entries(storage, count, head=heads)
        costs.append(cost(storage, lambda s=storage: s.newest_head(ROOT, s.last_seq)))  # type: ignore[misc]

    assert costs[0] == costs[1]
    assert costs[0].rows == 1 + heads
    assert costs[0].queries == 2


@pytest.mark.parametrize("levels", [10, 1_000])
def test_a_newest_head_over_forks_is_one_probe_a_level(
    levels: int, cost: Meter, new_session: NewSession
) -> None:
    storage = new_session("session")
    ids = write_entries(storage, SHORT, head=True)
    fork = fork_deep(storage, ids[-1], levels)

    def read() -> object:
        return storage.newest_head(fork, storage.last_seq)

    first, again = cost(storage, read), cost(storage, read)
    # The fork itself, a probe in it and in each ancestor, and what has the head.
    assert (again.queries, again.rows) == (1 + levels + 1, 2)
    # The links of a chain that was not asked for before are read once.
    assert first.queries <= again.queries + levels
    assert first.rows <= again.rows + levels


@pytest.mark.parametrize("levels", [10, 1_000])
def test_a_value_over_forks_is_one_probe_a_level(
    levels: int, cost: Meter, new_session: NewSession
) -> None:
    storage = new_session("session")
    storage.commit(MainBatch((ValueSet(ConversationAddress(ROOT, "name", rewind=True), {"a": 1}),)))
    ids = write_entries(storage, 2)
    fork = fork_deep(storage, ids[-1], levels)
    address = ConversationAddress(fork, "name", rewind=True)
    assert storage.get_value(address) is not None

    taken = cost(storage, lambda: storage.get_value(address))

    # Beside the probes: the fork itself, and the two tables that could hold its own policy.
    assert (taken.queries, taken.rows) == (levels + 1 + 3, 2)


def test_the_newest_page_of_a_fork_reads_no_further_than_it_is_long(
    cost: Meter, new_session: NewSession
) -> None:
    storage = new_session("session")
    ids = write_entries(storage, SHORT)
    fork = fork_deep(storage, ids[-1], 1_000)
    query = EntryQuery(conversation_id=fork, before=next_seq(storage), limit=50)
    assert len(storage.scan_entries(query).items) == 50

    taken = cost(storage, lambda: storage.scan_entries(query))

    # Each level holds one entry, so that 51 of them tell that there is another page.
    assert (taken.queries, taken.rows) == (1 + 51 + READ_AT, 51)


@pytest.mark.parametrize("of_conversation", [False, True], ids=["session", "conversation"])
def test_live_tasks_are_found_without_passing_terminal_ones(
    of_conversation: bool,  # noqa: FBT001
    cost: Meter,
    new_session: NewSession,
) -> None:
    query = TaskQuery(live=True, conversation_ids=(ROOT,) if of_conversation else None)
    costs = []
    for count in (10, 1_000):
        storage = new_session(str(count))
        settle_tasks(storage, count)
        for _ in range(3):
            storage.commit(MainBatch((new_task(next_seq(storage)),)))
        costs.append(cost(storage, lambda s=storage: s.scan_tasks(query)))  # type: ignore[misc]
        assert len(storage.scan_tasks(query).items) == 3

    assert costs[0] == costs[1]
    assert costs[0].rows == 3 + of_conversation


def test_a_list_page_passes_no_more_than_it_returns(cost: Meter, new_session: NewSession) -> None:
    costs = []
    for count in (SHORT, LONG):
        storage = new_session(str(count))
        storage.commit(MainBatch(tuple(ListAppend(LIST, number) for number in range(count))))
        query = ListQuery(before=next_seq(storage), limit=20)
        costs.append(cost(storage, lambda s=storage, q=query: s.read_list(LIST, q)))  # type: ignore[misc]
        assert len(storage.read_list(LIST, query).items) == 20

    assert costs[0].rows == costs[1].rows == 21
    assert costs[0].steps == costs[1].steps


def test_an_open_decodes_nothing_and_passes_no_history(tmp_path: Path, cost: Meter) -> None:
    steps = []
    for count in (SHORT, LONG):
        path = str(tmp_path / f"{count}.db")
        store = SqliteStore(path)
        storage = store.create("session")
        storage.commit(MainBatch((Conversation(id=ROOT),)))
        write_entries(storage, count)
        settle_tasks(storage, count // 10)
        written = storage.last_seq
        store.close()
        opened: list[Storage] = []
        store = SqliteStore(path, create=False)

        taken = cost(storage, lambda s=store, o=opened: o.append(s.open("session")))  # type: ignore[misc]

        assert opened[0].last_seq == written
        assert opened[0].counters.rows_decoded == 0
        assert opened[0].counters.queries == READ_AT
        steps.append(taken.steps)
        store.close()

    assert steps[0] == steps[1] > 0


@pytest.mark.parametrize("what", ["fork", "entry", "task"])
def test_a_commit_passes_no_history(what: str, cost: Meter, new_session: NewSession) -> None:
    steps = []
    for count in (SHORT, LONG):
        storage = new_session(str(count))
        ids = write_entries(storage, count)
        settle_tasks(storage, count // 10)
        id = next_seq(storage)
        write: Conversation | Entry | Task = new_task(id)
        if what == "fork":
            write = Conversation(id=id, parent=ForkPoint(ROOT, ids[-1]))
        elif what == "entry":
            write = Entry(id=id, conversation_id=ROOT, kind="user", head=ids[-1])
        batch = MainBatch((write,))

        steps.append(cost(storage, lambda s=storage, b=batch: s.commit(b)).steps)  # type: ignore[misc]

    assert steps[0] == steps[1] > 0


def test_a_fork_takes_as_much_room_on_a_long_history_as_on_a_short_one(tmp_path: Path) -> None:
    forks, grown = 400, []
    for count in (SHORT, LONG):
        path = tmp_path / f"{count}.db"
        store = SqliteStore(str(path))
        storage = store.create("session")
        storage.commit(MainBatch((Conversation(id=ROOT),)))
        ids = write_entries(storage, count)
        store.close()
        before = path.stat().st_size
        store = SqliteStore(str(path))
        storage = store.open("session")
        for _ in range(forks):
            fork = Conversation(id=next_seq(storage), parent=ForkPoint(ROOT, ids[-1]))
            storage.commit(MainBatch((fork,)))
        store.close()
        grown.append(path.stat().st_size - before)

    page = 4096
    assert abs(grown[0] - grown[1]) <= 3 * page
    assert max(grown) < forks * 150


def _steps_of_verify(path: Path, cost: Meter, *, sessions: int, batches: int, entries: int) -> int:
    """Return what it takes to verify sessions of some batches of some entries."""
    store = SqliteStore(str(path), durability="process")
    meter = store.create("meter")
    for name in range(sessions):
        storage = store.create(str(name))
        storage.commit(MainBatch((Conversation(id=ROOT),)))
        for _ in range(batches):
            first = storage.last_seq + 1
            new = (Entry(Seq(first + i), ROOT, "note") for i in range(entries))
            storage.commit(MainBatch((*new, ValueSet(SessionAddress("v", str(first)), 1))))
    taken = cost(meter, store.verify).steps
    store.close()
    return taken


def test_a_verify_costs_what_there_is_to_verify(tmp_path: Path, cost: Meter) -> None:
    """Not the square of a batch's size, nor that of the number of sessions."""
    small = _steps_of_verify(tmp_path / "a", cost, sessions=1, batches=100, entries=10)
    large = _steps_of_verify(tmp_path / "b", cost, sessions=1, batches=1, entries=1_000)
    few = _steps_of_verify(tmp_path / "c", cost, sessions=5, batches=20, entries=1)
    many = _steps_of_verify(tmp_path / "d", cost, sessions=40, batches=20, entries=1)

    assert large < small * 1.2
    assert many < few * 8 * 1.2


def test_a_removal_passes_none_of_the_removals_before_it(
    cost: Meter, new_session: NewSession
) -> None:
    steps = []
    for count in (SHORT, LONG):
        storage = new_session(str(count))
        first = next_seq(storage)
        storage.commit(MainBatch(tuple(ListAppend(LIST, i) for i in range(count + 2))))
        *_, cut = write_entries(storage, 1)
        fork = next_seq(storage)
        storage.commit(MainBatch((Conversation(id=fork, parent=ForkPoint(ROOT, cut)),)))
        inherited = ConversationAddress(fork, "list", rewind=True)
        removals = (ListRemove(inherited, Seq(first + offset)) for offset in range(count))
        storage.commit(MainBatch(tuple(removals)))
        last = MainBatch((ListRemove(inherited, Seq(first + count)),))

        steps.append(cost(storage, lambda s=storage, b=last: s.commit(b)).steps)  # type: ignore[misc]

    assert steps[0] == steps[1] > 0
