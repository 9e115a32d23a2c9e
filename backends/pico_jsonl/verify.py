"""Looking for damage: every line parsed strictly and checked as if a stranger had written it."""

from __future__ import annotations

import os

from pico_jsonl.folder import is_ours, place_in, session_folders
from pico_jsonl.lines import BadLineError, check_seal, claimed_seal
from pico_jsonl.opening import DamagedLineError, Place, load_for_reader
from pico_memory.load import load
from pico_memory.snapshot import snapshot
from pico_store.errors import RefusedError, StoreUnusableError
from pico_store.storage import Problem, VerifyReport


def verify_store(path: str) -> VerifyReport:
    """Read all sessions of a store, whatever is wrong with one of them, and change nothing."""
    reports = []
    for folder in session_folders(path):
        name = os.path.basename(folder)
        try:
            place = place_in(folder)
        except StoreUnusableError as error:
            reports.append(VerifyReport(0, (Problem(name, folder, str(error)),)))
            continue
        if place is not None:
            reports.append(verify_session(place))
        elif os.path.isdir(folder) and is_ours(folder):
            reports.append(VerifyReport(0, (Problem(name, folder, "its main log is not there"),)))
    problems = [problem for report in reports for problem in report.problems]
    return VerifyReport(sum(report.records for report in reports), tuple(problems))


def verify_session(place: Place) -> VerifyReport:
    """Read a session's files whole, while its owner may be writing, and change nothing."""
    try:
        loaded = load_for_reader(place, "process", strict=True)
    except DamagedLineError as error:
        problems = [Problem(place.session, error.where, error.what)]
        problems += _further(place, error)
        return VerifyReport(error.lines, tuple(problems))
    except StoreUnusableError as error:
        return VerifyReport(0, (Problem(place.session, place.folder, str(error)),))
    if loaded.missing:
        return VerifyReport(loaded.lines, (Problem(place.session, place.folder, loaded.missing),))
    try:
        # What a snapshot says of links and numbers is checked where it is loaded.
        load(snapshot(loaded.state).items(), keep=_forget)
    except RefusedError as error:
        return VerifyReport(loaded.lines, (Problem(place.session, place.main, str(error)),))
    return VerifyReport(loaded.lines)


def _further(place: Place, first: DamagedLineError) -> list[Problem]:
    """Return the damaged lines behind the first one of a file, as far as checksums tell."""
    found = []
    with open(first.path, "rb") as file:
        file.seek(first.offset)
        crc = claimed_seal(file.readline()) or 0
        offset = file.tell()
        for line in file:
            try:
                crc = check_seal(line, crc)
            except BadLineError as error:
                if line.endswith(b"\n"):
                    where = f"{first.path}: the line at offset {offset}"
                    found.append(Problem(place.session, where, str(error)))
                crc = claimed_seal(line) or 0
            offset += len(line)
    return found


def _forget(packed: bytes) -> bytes:
    return b""
