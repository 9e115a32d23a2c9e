"""OWN, DUR, SQL: rules that only real processes can prove."""

from __future__ import annotations

import contextlib
import socket

from pico_conformance.rule import SESSION, Lab, rule
from pico_conformance.rules.child import BATCH, child, commit_entries, ended, heard
from pico_conformance.rules.ownership import raised
from pico_store.address import Seq
from pico_store.errors import OwnershipLostError, SessionOwnedError
from pico_store.query import BatchQuery, EntryQuery

ELSEWHERE = "elsewhere"


@rule("OWN-1", "OWN-2", needs=("multi_process",))
def test_an_owner_in_another_process_is_named_and_its_death_frees(lab: Lab) -> None:
    with child(lab, "hold", ELSEWHERE) as owner:
        epoch = int(heard(owner))
        for act in (
            lambda: lab.store.open(ELSEWHERE),
            lambda: lab.store.delete(ELSEWHERE),
        ):
            message = str(raised(act, SessionOwnedError))
            assert str(owner.pid) in message, f"the message does not name the process: {message}"
            assert socket.gethostname() in message, f"nor the host: {message}"
        reader = lab.store.open(ELSEWHERE, read_only=True)
        assert reader.last_seq == 1, f"a reader beside the owner sees {reader.last_seq}"
        reader.close()
        owner.kill()
        owner.wait()

        storage = lab.store.open(ELSEWHERE)

    assert storage.epoch > epoch, f"epoch {storage.epoch} after the dead owner's {epoch}"
    assert commit_entries(storage) == 1 + BATCH, "the session taken over cannot be written"


@rule("OWN-1", needs=("multi_process",))
def test_an_owner_that_closes_frees_at_once(lab: Lab) -> None:
    with child(lab, "hold", ELSEWHERE) as owner:
        heard(owner)
        ended(owner)

        storage = lab.store.open(ELSEWHERE)

    assert storage.last_seq == 1, f"last_seq is {storage.last_seq}"


@rule("OWN-5", needs=("multi_process",))
def test_a_handle_is_fenced_by_another_process(lab: Lab) -> None:
    lab.root()
    with child(lab, "take", SESSION) as taker:
        last = int(heard(taker))

        raised(lambda: commit_entries(lab.storage), OwnershipLostError)

        assert last == 1 + BATCH, f"the new owner's commit ended at {last}"
        assert lab.store.open(SESSION, read_only=True).last_seq == last, "a fenced commit landed"
        lab.storage.close()
        raised(lambda: lab.store.open(SESSION), SessionOwnedError)


@rule("DUR-1", "SEQ-9", needs=("multi_process",))
def test_a_killed_process_loses_nothing_that_was_acknowledged(lab: Lab) -> None:
    acknowledged = 1
    for commits in (1, 25, 60):
        with child(lab, "write", ELSEWHERE, 100_000) as writer:
            for _ in range(commits):
                acknowledged = int(heard(writer))
            writer.kill()
            assert writer.stdout is not None
            for line in writer.stdout:
                # A line that was cut short is no acknowledgement.
                acknowledged = int(line) if line.endswith("\n") else acknowledged
        storage = lab.store.open(ELSEWHERE)
        last = storage.last_seq
        entries = storage.scan_entries(EntryQuery(conversation_id=Seq(1), limit=10_000)).items
        batches = storage.scan_batches(BatchQuery(limit=10_000)).items

        assert last >= acknowledged, f"{acknowledged} was acknowledged; {last} is left"
        assert last <= acknowledged + BATCH, f"{last} is more than one batch past {acknowledged}"
        assert (last - 1) % BATCH == 0, f"half a batch is left: last_seq {last}"
        assert [entry.id for entry in entries] == list(range(2, last + 1)), "entries are missing"
        assert batches[-1].last == last, f"the last batch ends at {batches[-1].last}, not {last}"
        storage.close()
    assert lab.store.verify().problems == (), "verify finds something wrong"


@rule("SQL-1", "OWN-6", "SEQ-10", needs=("multi_process", "many_sessions"))
def test_several_processes_write_one_store_and_one_reads(lab: Lab) -> None:
    lab.root()
    commits = 100
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(child(lab, "write", "first", commits))
        heard(first)
        reader = stack.enter_context(child(lab, "read", "first"))
        second = stack.enter_context(child(lab, "write", "second", commits))
        for _ in range(commits):
            commit_entries(lab.storage)
        for process in (first, second, reader):
            ended(process)

    for session in ("first", "second", SESSION):
        handle = lab.store.open(session, read_only=True)
        batches = handle.scan_batches(BatchQuery(limit=10_000)).items
        firsts = [1, *range(2, handle.last_seq, BATCH)]
        assert handle.last_seq == 1 + commits * BATCH, f"{session}: {handle.last_seq}"
        assert [batch.first for batch in batches] == firsts, f"{session}: batches are not gap-free"
    assert lab.store.verify().problems == (), "verify finds something wrong"


@rule("SQL-1", needs=("multi_process", "many_sessions"))
def test_several_processes_make_a_store_at_once(lab: Lab) -> None:
    for round in range(2):
        place = lab.new_place()
        lab.place = place
        with contextlib.ExitStack() as stack:
            processes = [
                stack.enter_context(child(lab, "write", f"s{index}", 1)) for index in range(4)
            ]
            for process in processes:
                assert int(ended(process)) == 1 + BATCH, "a process lost its commit"
        store = place.open()
        listed = [info.id for info in store.sessions()]
        assert listed == ["s0", "s1", "s2", "s3"], f"round {round}: {listed}"


@rule("DUR-5", "OWN-3", needs=("multi_process",))
def test_a_full_disk_fails_a_commit_and_harms_nothing(lab: Lab) -> None:
    room = 400_000
    with child(lab, "fill", ELSEWHERE, room) as process:
        error, acknowledged = heard(process), int(heard(process))
        assert error != "NoneType", "10,000 commits of 5 KB fit into 400 KB"
        rest = ended(process).split()
    storage = lab.store.open(ELSEWHERE)
    last = storage.last_seq

    assert acknowledged > 1, "nothing at all could be written"
    assert lab.store.verify().problems == (), "verify finds something wrong"
    entries = storage.scan_entries(EntryQuery(conversation_id=Seq(1), limit=10_000)).items
    assert [entry.id for entry in entries] == list(range(2, last + 1)), "entries are missing"
    if error == "CommitUncertainError":
        assert rest == ["faulted"], f"after an uncertain commit the handle went on: {rest}"
        assert last in (acknowledged, acknowledged + 1), f"{acknowledged} became {last}"
    else:
        assert error in ("StoreFullError", "StoreIOError", "StoreBusyError"), f"raised {error}"
        shown, gone_on = map(int, rest)
        assert shown == acknowledged, f"the failed commit is visible: {shown}"
        assert gone_on == acknowledged + 1, f"with room again, a commit ended at {gone_on}"
        assert last == gone_on, f"after reopening, last_seq is {last}"
