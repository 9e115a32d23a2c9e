"""A recorded session in a compressed store: bytes on disk beside what must survive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pico_bench.case import Numbers, Setting
from pico_bench.turns import entry_payload
from pico_store.backends import open_store
from pico_store.command import UsageError
from pico_store.importing import PreparedImport, read_transcript
from pico_store.records import Entry
from pico_store.strict_json import json_size

RECORDED: Final = Path(__file__).resolve().parents[3] / "shared" / "data" / "coding-session.jsonl"
"""Measured unless another file is named, if it is there."""


def recorded_sqlite(setting: Setting) -> Numbers:
    """Return what SQLite's file weighs when vacuumed and closed."""
    surviving = _fill(f"sqlite:{setting.folder}/recorded.db?compression=zstd", setting)
    disk = sum(path.stat().st_size for path in Path(setting.folder).iterdir())
    return {"disk": disk, "surviving": surviving}


def recorded_lmdb(setting: Setting) -> Numbers:
    """Return what LMDB's data file weighs when vacuumed."""
    surviving = _fill(f"lmdb:{setting.folder}/recorded?compression=zstd", setting)
    return {
        "disk": Path(setting.folder, "recorded", "data.mdb").stat().st_size,
        "surviving": surviving,
    }


def _fill(url: str, setting: Setting) -> int:
    file = setting.session or str(RECORDED)
    if not os.path.exists(file):
        raise UsageError("no recorded session; name one: --session FILE")
    store = open_store(url)
    with open(file, "rb") as lines:
        PreparedImport(read_transcript(lines)).load(store, "recorded")
    items = store.open("recorded", read_only=True).export()
    surviving = sum(json_size(entry_payload(item)) for item in items if isinstance(item, Entry))
    store.vacuum()
    store.close()
    return surviving
