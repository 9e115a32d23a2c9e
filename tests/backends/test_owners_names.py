"""Owners whose process has a name that is no text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pico_store.backends import open_store
from pico_store.errors import SessionOwnedError

_HOLD = """
import sys
from pico_store.backends import open_store
# What the system leaves of a long name that it cuts within a character.
open("/proc/self/comm", "wb").write(b"a) Z \\xc3")
storage = open_store(sys.argv[1]).create("a")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("scheme", ["jsonl", "lmdb", "sqlite"])
def test_a_process_of_any_name_owns_its_session(scheme: str, tmp_path: Path) -> None:
    url = f"{scheme}:{tmp_path}/a"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", _HOLD, url], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        store = open_store(url)

        with pytest.raises(SessionOwnedError, match=f"process {process.pid} "):
            store.open("a")
        process.kill()

    store.open("a").close()
    store.close()
