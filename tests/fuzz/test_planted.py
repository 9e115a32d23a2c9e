"""A planted fault is found: each attack fails where the promise that it attacks is not kept."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import patch

import msgspec
import pytest

from fuzz import crash, errors, flip, full, lines, power, strange, torn
from fuzz.__main__ import main
from fuzz.attack import Attack, Attempt, Budget
from fuzz.place import store_at
from pico_jsonl import JsonlStore
from pico_jsonl.disk import Disk
from pico_jsonl.lines import claimed_seal
from pico_memory.state import SessionState
from pico_store.batch import Batch
from pico_store.codec import parse_json
from pico_store.errors import InvalidValueError
from pico_store.storage import Durability, Storage, Store


def found(attempt: Callable[[str, int], Attempt], backend: str, seeds: int) -> str:
    """Return what the first of some seeds finds that finds something."""
    attack = Attack("planted", (backend,), attempt)
    for seed in range(1, seeds + 1):
        faults = attack.run(backend, seed, Budget(tries=1)).faults
        if faults:
            return faults[0].what
    return ""


# --- crash ---


class _Lagging:
    """A storage that acknowledges a batch before it is written, with the next one."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting: list[Batch] = []

    def commit(self, batch: Batch) -> None:
        self._waiting.append(batch)
        if len(self._waiting) > 1:
            self._storage.commit(self._waiting.pop(0))


class _LaggingStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    def open(self, session_id: str) -> _Lagging:
        return _Lagging(self._store.open(session_id))

    def create(self, session_id: str) -> _Lagging:
        return _Lagging(self._store.create(session_id))

    def vacuum(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        self._store.close()


@pytest.mark.parametrize("backend", ["sqlite", "jsonl", "lmdb"])
def test_an_early_acknowledgement_is_found(backend: str) -> None:
    def lagging(backend: str, path: str, level: Durability) -> Store:
        return _LaggingStore(store_at(backend, path, level))  # type: ignore[return-value]

    attempt = partial(crash.attempt, open_store=lagging)

    assert "lost:" in found(attempt, backend, 10)


# --- power ---


def test_a_log_that_is_not_synced_is_found() -> None:
    def never(fd: int) -> None:
        """Sync nothing."""

    def opener(path: str, level: Durability, disk: Disk) -> Store:
        return JsonlStore(path, durability=level, disk=Disk(disk.write, never, disk.cut))

    assert found(partial(power.attempt, opener=opener), "jsonl", 6)


def test_a_level_that_is_lower_than_said_is_found() -> None:
    def opener(path: str, level: Durability, disk: Disk) -> Store:
        return store_at("sqlite", path, "process")

    assert found(partial(power.attempt, opener=opener), "sqlite", 6)


# --- torn, flip ---


def test_half_a_line_that_is_not_cut_off_is_found() -> None:
    with patch("pico_jsonl.session._cut"):
        assert found(torn.attempt, "jsonl", 6)


def test_a_checksum_that_is_ignored_is_found() -> None:
    def ignoring(line: bytes, crc: int) -> int:
        return claimed_seal(line) or 0

    with (
        patch("pico_jsonl.replay.check_seal", ignoring),
        patch("pico_jsonl.bodies.check_seal", ignoring),
        patch("pico_jsonl.scratch.check_seal", ignoring),
    ):
        assert found(flip.attempt, "jsonl", 10)


# --- full, errors ---


def _not_cutting(fd: int, size: int) -> None:
    """Leave what a failed append wrote."""


def test_a_failed_append_that_is_left_is_found_where_there_is_no_room() -> None:
    with patch("pico_jsonl.store.Disk", lambda: Disk(cut=_not_cutting)):
        assert found(full.attempt, "jsonl", 30)


def test_a_failed_append_that_is_left_is_found_where_calls_fail() -> None:
    whole = errors.failing_disk

    def leaving(*arguments: object) -> Disk:
        made = whole(*arguments)  # type: ignore[arg-type]
        return Disk(made.write, made.sync, _not_cutting)

    with patch("fuzz.errors.failing_disk", leaving):
        assert found(errors.attempt, "jsonl", 30)


# --- lines, bytes ---


def test_half_a_commit_that_is_not_taken_back_is_found() -> None:
    def forgetting(state: SessionState) -> None:
        state.journal.clear()

    with patch.object(SessionState, "recover", forgetting):
        assert "half:" in found(lines.attempt, "memory", 5)


def test_an_error_that_is_none_of_ours_is_found() -> None:
    def decode(text: bytes) -> Batch:
        try:
            batch: Batch = msgspec.convert(parse_json(text), Batch)
        except msgspec.ValidationError as error:
            raise InvalidValueError("JSON-1", "batch", str(error)) from error
        return batch

    with patch("fuzz.strange.decode_batch", decode):
        assert "UnicodeEncodeError" in found(strange.attempt, "wire", 60)


# --- the campaign ---


def test_a_campaign_prints_a_table_and_keeps_what_it_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--tries", "1", "--seed", "1", "--attack", "bytes", "--backend", "wire"]
    arguments += ["--keep", str(tmp_path)]

    assert main(arguments) == 0
    assert "0 faults" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    with patch("fuzz.strange.decode_batch", side_effect=KeyError("planted")):
        assert main(arguments) == 1

    (kept,) = tmp_path.iterdir()
    out = capsys.readouterr().out
    assert "1 faults" in out
    assert str(kept) in out
    assert "planted" in kept.read_text()


def test_a_campaign_of_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--attack", "none"]) == 2
    assert "no attack" in capsys.readouterr().err
