"""Inputs that once led to a fault, each in a file, which the tests replay for ever."""

from __future__ import annotations

from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from fuzz.attack import Fault
from fuzz.attacks import ATTACKS
from fuzz.strange import replay_bytes

FOLDER: Final = Path(__file__).parent / "corpus"


class Case(Struct, frozen=True, omit_defaults=True):
    """What leads to a fault again."""

    attack: str
    backend: str
    seed: int
    what: str
    """What was found, in words."""
    data: str = ""
    """The input in base64, where there is one."""


def cases() -> dict[str, Case]:
    """Return every case by the name of its file."""
    return {
        path.stem: msgspec.json.decode(path.read_bytes(), type=Case)
        for path in sorted(FOLDER.glob("*.json"))
    }


def keep(fault: Fault, folder: Path = FOLDER) -> Path:
    """Write a fault to the corpus and return where."""
    name = f"{fault.attack}-{fault.backend}-{fault.seed}"
    if fault.data:
        name += f"-{sha256(fault.data).hexdigest()[:8]}"
    case = Case(
        fault.attack,
        fault.backend,
        fault.seed,
        fault.what[:600],
        b64encode(fault.data).decode(),
    )
    path = folder / f"{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(case), indent=1) + b"\n")
    return path


def replay(case: Case) -> list[str]:
    """Do what a case says; return what is wrong."""
    if case.data:
        wrong = replay_bytes(case.backend, case.seed, b64decode(case.data))
        return [wrong] if wrong else []
    (attack,) = (attack for attack in ATTACKS if attack.name == case.attack)
    return attack.attempt(case.backend, case.seed).failures
