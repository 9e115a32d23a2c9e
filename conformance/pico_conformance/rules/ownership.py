"""OWN: owners, epochs, read-only handles, closing, and the sessions of a store."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress

from pico_conformance.rule import SESSION, Lab, rule
from pico_conformance.rules.everything import assert_same, everything, untouched
from pico_conformance.rules.scene import build_scene
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import ListAppend, MainBatch, ScratchBatch, ValueSet
from pico_store.errors import (
    OwnershipLostError,
    PicoError,
    SessionExistsError,
    SessionOwnedError,
    StorageClosedError,
    UnknownSessionError,
    UnsupportedError,
)
from pico_store.owning import owner_text
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.records import Conversation
from pico_store.storage import Storage

NAME = SessionAddress("s", "name")


def raised(act: Callable[[], object], kind: type[PicoError]) -> PicoError:
    """Return the error of the kind that the act raises; fail if it raises another or none."""
    try:
        result = act()
    except kind as error:
        return error
    except PicoError as error:
        raise AssertionError(f"raised {error!r}, not {kind.__name__}") from error
    raise AssertionError(f"returned {result!r:.100}; {kind.__name__} is due")


def _set(storage: Storage, value: int) -> None:
    storage.commit(MainBatch((ValueSet(NAME, value),)))


@rule("OWN-1")
def test_a_second_owner_is_refused_and_told_who_has_it(lab: Lab) -> None:
    lab.root()
    message = ""
    for act in (lambda: lab.store.open(SESSION), lambda: lab.store.delete(SESSION)):
        message = str(raised(act, SessionOwnedError))

        assert str(os.getpid()) in message, f"the message does not name the process: {message}"
        assert socket.gethostname() in message, f"the message does not name the host: {message}"
    (info,) = lab.store.sessions()
    assert info.owner is not None, "the owner is not listed"
    assert info.owner.pid == os.getpid(), f"listed as owner: {info.owner}"
    _, _, since = owner_text(info.owner).partition("since ")
    assert any(text in message for text in (str(info.owner.since_ms), since)), (
        f"the message does not say since when: {message}"
    )
    _set(lab.storage, 1)

    lab.storage.close()
    lab.storage = lab.store.open(SESSION)

    _set(lab.storage, 2)
    assert lab.storage.last_seq == 3, "the session given back cannot be used"


@rule("OWN-1", needs=("multi_process",))
def test_a_second_handle_on_the_store_is_no_way_round(lab: Lab) -> None:
    lab.root()
    other = lab.place.open()
    raised(lambda: other.open(SESSION), SessionOwnedError)
    raised(lambda: other.delete(SESSION), SessionOwnedError)

    lab.storage.close()
    taken = other.open(SESSION)

    raised(lambda: lab.store.open(SESSION), SessionOwnedError)
    _set(taken, 1)
    assert taken.last_seq == 2, "the second handle cannot write what the first gave back"


@rule("OWN-2")
def test_every_writing_open_raises_the_epoch(lab: Lab) -> None:
    epochs = [lab.storage.epoch]
    for _ in range(3):
        lab.store.open(SESSION, read_only=True).close()
        epochs.append(lab.reopen().epoch)
    epochs.append(lab.store.open(SESSION, take_over=True).epoch)

    assert epochs == sorted(set(epochs)), f"epochs: {epochs}"
    (info,) = lab.store.sessions()
    assert info.epoch == epochs[-1], f"listed with epoch {info.epoch}; the last is {epochs[-1]}"


@rule("OWN-2", "SEQ-6")
def test_a_read_only_handle_takes_nothing(lab: Lab) -> None:
    build_scene(lab)
    before = everything(lab.storage)
    epoch = lab.storage.epoch

    reader = lab.store.open(SESSION, read_only=True)

    assert reader.read_only, "the handle does not say that it is read-only"
    assert not lab.storage.read_only, "the owner's handle says that it is read-only"
    assert_same(before, everything(reader), "opening read-only")
    for batch in (MainBatch((ValueSet(NAME, 1),)), MainBatch(())):
        refusal = raised(lambda batch=batch: reader.commit(batch), UnsupportedError)  # type: ignore[misc]
        assert "OWN-2" in str(refusal), f"the refusal names no clause: {refusal}"
    assert (lab.storage.epoch, reader.last_seq) == (epoch, lab.storage.last_seq), "the owner moved"
    _set(lab.storage, 7)
    reader.close()
    later = lab.store.open(SESSION, read_only=True)
    found = later.get_value(NAME)
    assert found is not None, "the value is absent"
    assert found.value == 7, f"a new reader sees {found.value}, not what was committed before"
    lab.storage.close()
    assert_same(everything(later), everything(lab.reopen()), "reopening")


@rule("OWN-2")
def test_opening_and_closing_changes_nothing(lab: Lab) -> None:
    build_scene(lab)
    before = everything(lab.storage)
    for _ in range(3):
        lab.reopen()
        lab.store.open(SESSION, read_only=True).close()
        lab.store.sessions()

    assert_same(before, everything(lab.storage), "opening and closing")


@rule("OWN-4")
def test_every_call_after_close_is_refused(lab: Lab) -> None:
    scene = build_scene(lab)
    storage = lab.storage
    stream = storage.export()
    expected = list(storage.export())
    seen = [next(stream)]
    address = ConversationAddress(scene.root, "v", rewind=True)
    storage.close()
    storage.close()
    calls: tuple[Callable[[], object], ...] = (
        lambda: storage.commit(MainBatch((ValueSet(NAME, 1),))),
        lambda: storage.commit(MainBatch(()), expected_first=Seq(1)),
        lambda: storage.last_seq,
        lambda: storage.get_conversations([scene.root]),
        lambda: storage.scan_conversations(ConversationQuery()),
        lambda: storage.get_entries([]),
        lambda: storage.scan_entries(EntryQuery(conversation_id=Seq(10**6), limit=1)),
        lambda: storage.newest_head(scene.root, Seq(1)),
        lambda: storage.get_tasks([scene.live]),
        lambda: storage.scan_tasks(TaskQuery()),
        lambda: storage.get_value(address),
        lambda: storage.scan_values(ValueQuery(scope=address)),
        lambda: storage.read_list(address, ListQuery()),
        lambda: storage.rewind_policy(address, "value"),
        lambda: storage.entry_kinds(),
        lambda: storage.scan_batches(BatchQuery()),
        lambda: list(storage.export()),
    )
    for index, call in enumerate(calls):
        try:
            result = call()
        except StorageClosedError:
            continue
        raise AssertionError(f"call {index} after close returned {result!r:.100}")
    try:
        seen += stream
    except StorageClosedError:
        return
    assert seen == expected, "an export that outlived close shows something else"


@rule("OWN-4")
def test_closing_the_store_closes_its_handles(lab: Lab) -> None:
    lab.root()
    reader = lab.store.open(SESSION, read_only=True)
    lab.store.close()
    lab.store.close()

    raised(lambda: lab.storage.get_entries([]), StorageClosedError)
    raised(lambda: reader.entry_kinds(), StorageClosedError)
    raised(lambda: lab.storage.commit(MainBatch((ValueSet(NAME, 1),))), StorageClosedError)
    for act in (
        lambda: lab.store.sessions(),
        lambda: lab.store.create("other"),
        lambda: lab.store.open(SESSION),
        lambda: lab.store.delete(SESSION),
        lambda: lab.store.load("other", []),
        lambda: lab.store.verify(),
        lambda: lab.store.vacuum(),
        lambda: lab.store.backup(lab.place.path + ".backup"),
    ):
        raised(act, StorageClosedError)


@rule("OWN-5", "SEQ-8")
def test_a_fenced_handle_never_commits_again(lab: Lab) -> None:
    root = lab.root()
    old = lab.storage
    new = lab.store.open(SESSION, take_over=True)

    assert new.epoch > old.epoch, f"epoch {new.epoch} after {old.epoch}"
    for batch in (MainBatch((ValueSet(NAME, 1),)), MainBatch(())):
        raised(lambda batch=batch: old.commit(batch), OwnershipLostError)  # type: ignore[misc]
    stale = MainBatch((ValueSet(NAME, 1),))
    raised(lambda: old.commit(stale, expected_first=Seq(99)), OwnershipLostError)
    assert new.last_seq == root, "a fenced commit wrote something"
    _set(new, 2)
    # Whether it learns of the new owner's numbers before it is refused is left open.
    seen = {**everything(old), "last_seq": everything(new)["last_seq"]}
    assert_same(everything(new), seen, "being fenced")
    old.close()
    raised(lambda: lab.store.open(SESSION), SessionOwnedError)
    _set(new, 3)
    new.close()
    lab.storage = lab.store.open(SESSION)
    found = lab.storage.get_value(NAME)
    assert found is not None, "the value is absent"
    assert (found.value, lab.storage.last_seq) == (3, 3), f"in the end: {found}"


@rule("OWN-5")
def test_a_fenced_handle_stays_fenced_when_nobody_owns(lab: Lab) -> None:
    lab.root()
    old = lab.storage
    lab.store.open(SESSION, take_over=True).close()

    raised(lambda: _set(old, 1), OwnershipLostError)

    (info,) = lab.store.sessions()
    assert info.owner is None, f"listed as owner: {info.owner}"
    assert info.last_seq == 1, f"last_seq is {info.last_seq}: the fenced commit landed"
    lab.storage = lab.store.open(SESSION)
    raised(lambda: _set(old, 1), OwnershipLostError)


@rule("OWN-5", "OWN-2")
def test_nobody_takes_over_to_read(lab: Lab) -> None:
    lab.root()
    with untouched(lab, "OWN-5"):
        lab.store.open(SESSION, read_only=True, take_over=True)
    _set(lab.storage, 1)

    assert lab.storage.last_seq == 2, "the owner lost the session by an open that was refused"


@rule("OWN-5", "SEQ-8")
def test_two_handles_prepared_for_one_number(lab: Lab) -> None:
    for old_first in (True, False):
        place = lab.new_place()
        store = place.open()
        old = store.create("s")
        old.commit(MainBatch((Conversation(id=Seq(1)),)))
        new = store.open("s", take_over=True)
        batch = MainBatch((ValueSet(NAME, 1),))
        if old_first:
            raised(
                lambda old=old, batch=batch: old.commit(batch, expected_first=Seq(2)),  # type: ignore[misc]
                OwnershipLostError,
            )
        new.commit(batch, expected_first=Seq(2))
        raised(
            lambda old=old, batch=batch: old.commit(batch, expected_first=Seq(2)),  # type: ignore[misc]
            OwnershipLostError,
        )
        batches = [item.first for item in new.scan_batches(BatchQuery()).items]

        assert batches == [1, 2], f"old first: {old_first}: batches {batches}"


@rule("OWN-6", needs=("many_sessions",))
def test_sessions_of_one_store_do_not_see_one_another(lab: Lab) -> None:
    build_scene(lab)
    before = everything(lab.storage)
    ids = ["b", "a", "ab", "A", "é", "z"]
    handles = {id: lab.store.create(id) for id in ids}
    for count, (id, handle) in enumerate(handles.items(), 1):
        handle.commit(MainBatch((Conversation(id=Seq(1)), ValueSet(NAME, id))))
        for _ in range(count):
            handle.commit(MainBatch((ValueSet(NAME, id),)))

    listed = [info.id for info in lab.store.sessions()]

    assert listed == sorted([*ids, SESSION]), f"listed: {listed}"
    for count, (id, handle) in enumerate(handles.items(), 1):
        found = handle.get_value(NAME)
        assert found is not None, f"session {id!r} lost its value"
        assert (found.value, found.seq) == (id, 2 + count), f"session {id!r} shows {found}"
        assert handle.session_id == id, f"session {id!r} calls itself {handle.session_id!r}"
        assert handle.scan_tasks(TaskQuery()).items == [], f"session {id!r} has another's tasks"
    assert_same(before, everything(lab.storage), "writing to other sessions")


@rule("OWN-6", "SEQ-10", needs=("many_sessions", "multi_process"))
def test_two_handles_on_one_store_take_turns(lab: Lab) -> None:
    other = Lab(lab.target, lab.place, lab.place.open(), lab.storage)
    other.storage = other.store.create("other")
    first, second = build_scene(lab), build_scene(other)
    assert first == second, "equal histories got other numbers"
    for turn in range(10):
        for mine, scene in ((lab, first), (other, second)):
            mine.entry(scene.root, key=str(turn))
            fork = mine.fork(scene.root, scene.note)
            mine.append(ConversationAddress(fork, "l", rewind=True), turn)
            mine.settle(mine.task(fork))
        assert_same(everything(lab.storage), everything(other.storage), f"turn {turn}")
    listed = {info.id: info.last_seq for info in other.store.sessions()}

    last = lab.storage.last_seq
    assert listed == {SESSION: last, "other": last}, f"listed: {listed}"


@rule("OWN-6", needs=("many_sessions",))
def test_a_deleted_session_is_gone_and_its_id_free(lab: Lab) -> None:
    build_scene(lab)
    before = everything(lab.storage)
    other = lab.store.create("other")
    other.commit(MainBatch((Conversation(id=Seq(1)), ValueSet(NAME, 1))))
    other.close()

    lab.store.delete("other")

    assert [info.id for info in lab.store.sessions()] == [SESSION], "it is still listed"
    raised(lambda: lab.store.open("other"), UnknownSessionError)
    raised(lambda: lab.store.open("other", read_only=True), UnknownSessionError)
    raised(lambda: lab.store.delete("other"), UnknownSessionError)
    again = lab.store.create("other")
    assert again.last_seq == 0, f"a new session starts at {again.last_seq}"
    assert again.get_value(NAME) is None, "a new session has the old one's value"
    assert_same(before, everything(lab.storage), "deleting another session")


@rule("OWN-6")
def test_a_session_is_created_once(lab: Lab) -> None:
    lab.root()
    with untouched(lab, "OWN-6"):
        raised_by = raised(lambda: lab.store.create(SESSION), SessionExistsError)
        raise raised_by
    with untouched(lab, "OWN-6"):
        raise raised(lambda: lab.store.open("unknown"), UnknownSessionError)
    lab.storage.close()
    raised(lambda: lab.store.create(SESSION), SessionExistsError)
    lab.storage = lab.store.open(SESSION)

    assert lab.storage.last_seq == 1, "creating it again changed the session"
    assert [info.id for info in lab.store.sessions()] == [SESSION], "sessions"


@rule("OWN-5", "OWN-6", needs=("many_sessions",))
def test_a_handle_of_a_deleted_session_reaches_no_other(lab: Lab) -> None:
    for name in ("another", SESSION):
        scene = build_scene(lab)
        frames = ScratchAddress(scene.live, "f")
        lab.append(SessionAddress("l"), "mine")
        old = lab.storage
        lab.store.open(SESSION, take_over=True).close()
        lab.store.delete(SESSION)
        lab.storage = lab.store.create(name)
        assert build_scene(lab) == scene, "equal histories got other numbers"
        lab.append(SessionAddress("l"), "theirs")
        before = everything(lab.storage)

        raised(lambda old=old: _set(old, 1), OwnershipLostError)  # type: ignore[misc]
        frame = ScratchBatch(scene.live, (ListAppend(frames, "mine"),))
        raised(lambda old=old, frame=frame: old.commit(frame), OwnershipLostError)  # type: ignore[misc]

        # Whether the session that was deleted is still shown is left open.
        with suppress(PicoError):
            shown = old.read_list(SessionAddress("l"), ListQuery()).items
            assert "theirs" not in [item.value for item in shown], "another's list is shown"
        old.close()
        raised(lambda name=name: lab.store.open(name), SessionOwnedError)  # type: ignore[misc]
        assert_same(before, everything(lab.storage), "what a handle of a deleted session did")
        if name != SESSION:
            lab.storage.close()
            lab.storage = lab.store.create(SESSION)
