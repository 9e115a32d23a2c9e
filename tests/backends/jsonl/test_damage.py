"""JSONL-2, DUR-6, DUR-8: a line that is not what was written is found, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pico_jsonl import JsonlStore
from pico_jsonl.lines import header_body
from pico_store.address import Seq
from pico_store.batch import MainBatch
from pico_store.digest import digest
from pico_store.errors import StoreDamagedError, StoreUnusableError
from pico_store.records import JsonValue
from pico_store.storage import Durability
from tests.backends.jsonl.scene import (
    ROOT_BATCH,
    contents,
    copied,
    digest_of,
    entry,
    frame,
    main_100_scratch_150,
    main_of,
    make_by_hand,
    note,
    opened,
    read_digest,
    scratch_of,
    setting,
)

FIRST = b'{"first":1,"kind":"main","writes":[{"type":"createConversation","id":1}]'
SECOND = (
    b'{"first":2,"kind":"main","writes":[{"type":"entry","id":2,"conversationId":1,"kind":"n"}]'
)


def _small(path: Path) -> None:
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    storage.commit(setting("x"))
    note(storage, "y")
    store.close()


def _refused(path: Path, durability: Durability = "process") -> str:
    """Return the message of an opening that is refused, after seeing that nothing changed."""
    before = contents(path)
    with pytest.raises(StoreUnusableError) as found, opened(path, durability):
        pass
    assert contents(path) == before
    with pytest.raises(StoreUnusableError):
        digest_of(path, durability)
    assert contents(path) == before
    return str(found.value)


# --- Single bits ---


def test_a_flipped_bit_of_any_byte_of_a_closed_session_is_found(path: Path) -> None:
    _small(path)
    mark, whole = read_digest(path), main_of(path).read_bytes()
    missed = []
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        main_of(path).write_bytes(damaged)
        try:
            found = read_digest(path)
        except StoreUnusableError:
            continue
        # Without its end the last line is a torn one, which has to be cut off.
        if found != mark and at < len(whole) - 1:
            missed.append(at)

    assert missed == []


def test_every_flipped_bit_of_the_control_file_is_found_or_harmless(path: Path) -> None:
    _small(path)
    mark, control = read_digest(path), path / "a" / "control"
    whole, refused = control.read_bytes(), 0
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at % 8
        control.write_bytes(damaged)
        try:
            found = read_digest(path)
        except StoreDamagedError:
            refused += 1
        else:
            assert found == mark

    assert refused == 8 * 5, "the beginning and four numbers"


def test_damage_after_opening_is_found_by_the_read(path: Path) -> None:
    _small(path)
    with opened(path) as storage:
        text = main_of(path).read_bytes()
        main_of(path).write_bytes(text.replace(b'"data":"y"', b'"data":"z"'))

        with pytest.raises(StoreDamagedError, match="entry 3"):
            storage.get_entries([storage.last_seq])


def test_what_a_later_handle_committed_is_checked_as_well(path: Path) -> None:
    _small(path)
    with opened(path) as storage:
        id = note(storage, "fresh")
        text = main_of(path).read_bytes()
        main_of(path).write_bytes(text.replace(b'"data":"fresh"', b'"data":"stale"'))

        with pytest.raises(StoreDamagedError, match=f"entry {id}"):
            storage.get_entries([id])


# --- Complete lines ---

LINES: dict[str, tuple[bytes, str]] = {
    "no JSON": (b'{"first":3,"kind":"main","writes":[}', "not JSON"),
    "no object": (b'[{"first":3', "not JSON"),
    "no batch": (b'{"last":3', "last"),
    "another batch's kind": (b'{"first":3,"kind":"other","writes":[]', "kind"),
    "scratch": (b'{"first":3,"kind":"scratch","task":2,"writes":[]', "another file"),
    "no writes": (b'{"first":3,"kind":"main","writes":[]', "writes"),
    "no first": (b'{"kind":"main","writes":[]', "members kind"),
    "a first that is no number": (b'{"first":"3","kind":"main","writes":[]', "Expected"),
    "a first that is true": (b'{"first":true,"kind":"main","writes":[]', "Expected"),
    "the same number": (SECOND, "begins at number 2"),
    "a lower number": (FIRST, "begins at number 1"),
    "a key twice": (SECOND.replace(b'"first":2', b'"first":3,"first":3'), "repeated"),
    "a key of a write twice": (
        b'{"first":3,"kind":"main","writes":'
        b'[{"type":"entry","id":3,"conversationId":1,"kind":"n","kind":"n"}]',
        "repeated",
    ),
    "a key of a payload twice": (
        b'{"first":3,"kind":"main","writes":'
        b'[{"type":"entry","id":3,"conversationId":1,"kind":"n","data":{"a":1,"a":1}}]',
        "repeated",
    ),
    "an unknown member": (SECOND.replace(b'"first":2', b'"first":3,"more":1'), "more"),
    "an unknown conversation": (
        b'{"first":3,"kind":"main","writes":[{"type":"entry","id":3,"conversationId":2,"kind":"n"}]',
        "fit",
    ),
    "another id": (
        b'{"first":3,"kind":"main","writes":[{"type":"entry","id":4,"conversationId":1,"kind":"n"}]',
        "fit",
    ),
    "an unknown task": (
        b'{"first":3,"kind":"main","writes":[{"type":"patch","id":2,"abort":true}]',
        "fit",
    ),
    "an unknown element": (
        b'{"first":3,"kind":"main","writes":[{"type":"list.remove","address":'
        b'{"scope":"session","namespace":"s"},"element":2}]',
        "fit",
    ),
    "a second header": (header_body("a", None), "members"),
    "a snapshot": (b'{"snapshot":{"type":"session","lastSeq":2,"entryKinds":[]}', "members"),
    "a number that only an infinity holds": (
        b'{"first":3,"kind":"main","writes":[{"type":"value.set","address":'
        b'{"scope":"session","namespace":"s"},"value":1e400}]',
        "finite",
    ),
    "a lone surrogate": (
        b'{"first":3,"kind":"main","writes":[{"type":"value.set","address":'
        b'{"scope":"session","namespace":"s"},"value":"\\ud800"}]',
        "surrogate",
    ),
    "what is no UTF-8": (
        b'{"first":3,"kind":"main","writes":[{"type":"value.set","address":'
        b'{"scope":"session","namespace":"s"},"value":"\xff"}]',
        "UTF-8",
    ),
    "what is nested too deep": (
        b'{"first":3,"kind":"main","writes":[{"type":"value.set","address":'
        b'{"scope":"session","namespace":"s"},"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}]",
        "nested",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_a_sealed_line_that_may_not_stand_there_is_refused(path: Path, name: str) -> None:
    body, reason = LINES[name]
    make_by_hand(path, [FIRST, SECOND, body])

    message = _refused(path)

    assert "main.jsonl: line 4 at offset" in message
    assert reason in message, message


SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "no checksum": lambda line: line[: line.index(b',"crc32"')] + b"}\n",
    "another checksum": lambda line: line[:-4] + bytes([line[-4] ^ 1]) + line[-3:],
    "capital digits": lambda line: line[:-11] + b"ABCDEF00" + line[-3:],
    "something behind it": lambda line: line[:-1] + b" \n",
    "a member behind it": lambda line: line[:-2] + b',"a":1}\n',
    "nothing at all": lambda line: b"\n",
    "twice": lambda line: line + line,
    "nothing before it": lambda line: b'{"crc32":"00000000"}\n',
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_line_without_its_checksum_is_refused(path: Path, name: str) -> None:
    make_by_hand(path, [FIRST, SECOND])
    *lines, last = main_of(path).read_bytes().splitlines(keepends=True)
    main_of(path).write_bytes(b"".join(lines) + SPOILT[name](last))

    _refused(path)


def test_a_line_that_is_lost_or_moved_is_missed(path: Path, tmp_path: Path) -> None:
    third = SECOND.replace(b"2", b"3")
    make_by_hand(path, [FIRST, SECOND, third])
    header, first, second, last = main_of(path).read_bytes().splitlines(keepends=True)
    for number, lines in enumerate(
        ([header, first, last], [header, second, first, last], [header, first, last, second])
    ):
        there = copied(path, tmp_path / str(number))
        main_of(there).write_bytes(b"".join(lines))

        _refused(there)


def test_a_log_of_another_session_is_not_taken_for_this_one(path: Path) -> None:
    make_by_hand(path, [FIRST])
    main_of(path).write_bytes(main_of(path).read_bytes().replace(b'"a"', b'"b"'))
    before = contents(path)

    store = JsonlStore(str(path))
    for act in (store.sessions, lambda: store.open("a"), lambda: store.open("a", read_only=True)):
        with pytest.raises(StoreDamagedError, match="'b'"):
            act()
    store.close()

    assert contents(path) == before


@pytest.mark.parametrize("text", [b"", b"\n", b"to do\n", b'{"format":"other","version":1}\n'])
def test_what_is_no_log_is_refused(path: Path, text: bytes) -> None:
    make_by_hand(path, [FIRST])
    main_of(path).write_bytes(text)

    _refused(path)


def test_half_a_snapshot_is_refused_at_every_level(path: Path) -> None:
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    note(storage)
    store.vacuum()
    store.close()
    lines = main_of(path).read_bytes().splitlines(keepends=True)
    main_of(path).write_bytes(b"".join(lines[:3]))

    levels: tuple[Durability, ...] = ("power", "ordered", "process")
    for durability in levels:
        assert "first part" in _refused(path, durability)


# --- Spelled otherwise, and meaning the same ---


def test_a_line_may_be_spelled_in_any_way_that_means_the_same(path: Path, tmp_path: Path) -> None:
    data: JsonValue = {"b": [1, 2.5, True, None, "\u00e9\u2028/"], "a": {"b": 1}}
    writes = MainBatch((*ROOT_BATCH.writes, entry(2, data=data)))
    store = JsonlStore(str(tmp_path / "ours"))
    storage = store.create("a")
    storage.commit(writes)
    store.close()
    body = (
        b'{ "writes" : [\t{"id":1,"type":"createConversation"}, {"kind":"\\u006eote",'
        b'"type":"entry","id":2,"conversationId":1,"data":{"b":[1,25e-1,true,null,'
        b'"\\u00e9\\u2028\\/"], "a":{"b":1}}}],\r "kind":"main" , "first":1 '
    )

    make_by_hand(path, [body])

    assert digest_of(path) == digest_of(tmp_path / "ours")
    with opened(path) as found:
        note(found, "later")
        assert found.get_entries([Seq(2)])[Seq(2)].data == data
    store = JsonlStore(str(path))
    assert store.verify().problems == ()
    store.vacuum()
    store.close()
    assert main_of(path).read_bytes().count(b'"\\u006eote"') == 0


def test_a_snapshot_may_be_spelled_in_any_way_that_means_the_same(
    path: Path, tmp_path: Path
) -> None:
    with_store = JsonlStore(str(path))
    storage = with_store.create("a")
    storage.commit(ROOT_BATCH)
    storage.commit(setting({"a": 1}))
    note(storage, "y")
    with_store.vacuum()
    with_store.close()
    mark = digest_of(path)
    bodies = [
        line[: line.rindex(b',"crc32"')].replace(b":", b" : ").replace(b",", b" ,\t")
        for line in main_of(path).read_bytes().splitlines(keepends=True)[1:]
    ]
    assert len(bodies) > 2

    make_by_hand(tmp_path / "spaced", bodies)

    assert digest_of(tmp_path / "spaced") == mark


@pytest.mark.parametrize(
    ("write", "clause"),
    [
        (b'{"type":"entry","id":3,"conversationId":1,"kind":"n","head":9}', "ENT-2"),
        (
            b'{"type":"value.set","address":{"scope":"session","namespace":"s"},"value":'
            + b"[" * 201 + b"]" * 201 + b"}",
            "JSON-4",
        ),
    ],
)  # fmt: skip
def test_verify_checks_lines_that_opening_trusts(path: Path, write: bytes, clause: str) -> None:
    # Our own spelling and a fitting checksum, but no commit would have let it pass.
    make_by_hand(path, [FIRST, SECOND, b'{"first":3,"kind":"main","writes":[' + write + b"]"])

    store = JsonlStore(str(path))
    (problem,) = store.verify().problems
    store.close()

    assert "number 3" in problem.where
    assert clause in problem.what


def test_verify_names_every_damaged_line(path: Path) -> None:
    make_by_hand(path, [FIRST, *(SECOND.replace(b"2", b"%d" % n) for n in range(2, 8))])
    text = main_of(path).read_bytes()
    main_of(path).write_bytes(text.replace(b'"id":3', b'"id":8').replace(b'"id":6', b'"id":8'))

    store = JsonlStore(str(path))
    problems = store.verify().problems
    store.close()

    assert len(problems) == 2
    assert "number 3" in problems[0].where
    assert str(text.index(b'{"first":6')) in problems[1].where


# --- What a power cut explains ---


def _spoil(path: Path, back: int) -> int:
    """Damage the n-th line from the end; return where it begins."""
    lines = main_of(path).read_bytes().splitlines(keepends=True)
    at = len(b"".join(lines[:-back]))
    text = bytearray(b"".join(lines))
    text[at + 20] ^= 1
    main_of(path).write_bytes(text)
    return at


@pytest.mark.parametrize(
    ("durability", "back", "cut"),
    [
        ("ordered", 1, True),
        ("ordered", 2, True),
        ("power", 1, True),
        ("power", 2, False),
        ("process", 1, False),
    ],
)
def test_damage_beyond_the_watermark_is_cut_where_a_power_cut_explains_it(
    path: Path, durability: Durability, back: int, *, cut: bool
) -> None:
    make_by_hand(path, [FIRST, *(SECOND.replace(b"2", b"%d" % n) for n in range(2, 6))])
    at = _spoil(path, back)

    if not cut:
        assert f"offset {at}" in _refused(path, durability)
        return
    with opened(path, durability) as storage:
        assert storage.last_seq == 5 - back
        assert storage.open_report.dropped_at == at
        assert main_of(path).stat().st_size == at
        note(storage)
    assert digest_of(path)


@pytest.mark.parametrize("durability", ["ordered", "power"])
def test_damage_before_the_watermark_is_refused(path: Path, durability: Durability) -> None:
    make_by_hand(path, [FIRST, *(SECOND.replace(b"2", b"%d" % n) for n in range(2, 6))])
    with opened(path, durability):
        pass
    at = _spoil(path, 1)

    assert f"offset {at}" in _refused(path, durability)


def test_a_damaged_scratch_line_is_cut_or_refused(path: Path, tmp_path: Path) -> None:
    store = JsonlStore(str(path))
    storage = store.create("a")
    storage.commit(ROOT_BATCH)
    main_100_scratch_150(storage)
    storage.commit(frame("last"))
    # Not closed, so that nothing of the scratch is known to be durable.
    killed = copied(path, tmp_path / "killed")
    store.close()
    text = scratch_of(path).read_bytes()
    for there in (killed, path):
        text = scratch_of(there).read_bytes()
        scratch_of(there).write_bytes(text.replace(b'"value":30', b'"value":31'))
    cut = copied(killed, tmp_path / "cut")

    with opened(cut) as storage:
        assert len(storage.open_report.notes) == 2
        assert storage.open_report.dropped_at == text.index(b'{"first":131')
        # What was lost is known to have been used.
        assert storage.last_seq == 151
        storage.commit(frame("later"))
    assert "offset" in _refused(killed, "process")
    assert "after number 130" in _refused(path, "ordered")


@pytest.mark.parametrize("durability", ["ordered", "power"])
def test_closing_makes_durable_what_was_written(path: Path, durability: Durability) -> None:
    make_by_hand(path, [FIRST])
    with opened(path, durability) as storage:
        note(storage)

    at = _spoil(path, 1)

    assert f"offset {at}" in _refused(path, durability)


def test_a_digest_is_of_what_is_there(path: Path) -> None:
    _small(path)
    with opened(path) as storage:
        assert digest(storage.export()) == digest_of(path)


def test_a_store_without_its_mark_is_damaged(path: Path) -> None:
    _small(path)
    (path / "store.json").unlink()
    before = contents(path)

    with pytest.raises(StoreDamagedError):
        JsonlStore(str(path))

    assert contents(path) == before
