"""Recording what a program asks of the operating system, by what `strace` saw of it."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from typing import Final

from fuzz.place import environment
from fuzz.recording import Recording

ACK_NAME: Final = "acknowledged"
"""What is written to a file of this name is told to the program's user."""
_CALLS: Final = (
    "openat,open,close,write,pwrite64,pwritev,writev,ftruncate,fsync,fdatasync,rename,"
    "renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,link,linkat,lseek,dup,msync"
)
_LINE: Final = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_TEXT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')


@cache
def why_not() -> str:
    """Say what is missing; empty: nothing."""
    if shutil.which("strace") is None:
        return "no strace: what is written and synced cannot be recorded"
    probe = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return "" if probe.returncode == 0 else "no strace that may trace: calls cannot be recorded"


def record(root: str, log: str, arguments: list[str]) -> tuple[Recording, str]:
    """Run a module of Python's under strace and record what it does below a folder.

    Args:
        root: The folder.
        log: A file for strace to write.
        arguments: The module and what it is given.

    Returns:
        What it did, and what it said if it failed.
    """
    command = ["strace", "-f", "-xx", "-s", "1000000", "-e", f"trace={_CALLS}", "-o", log]
    done = subprocess.run(
        [*command, sys.executable, "-m", *arguments],
        capture_output=True,
        env=environment(),
        check=False,
    )
    recording = Recording(root)
    with open(log) as file:
        _read(file.read().splitlines(), recording, root)
    return recording, done.stderr.decode(errors="replace") if done.returncode else ""


def _read(lines: list[str], recording: Recording, root: str) -> None:
    acks: set[int] = set()
    count = 0
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            # The end of the process, or a signal.
            assert "unfinished" not in line, f"two threads at once: {line[:200]}"
            continue
        call, text, result = match[1], match[2], int(match[3])
        if result < 0:
            continue
        if call in ("openat", "open"):
            path = _paths(text)[0]
            recording.closed(result)
            acks.discard(result)
            if os.path.basename(path) == ACK_NAME:
                acks.add(result)
            elif path.startswith(root):
                recording.opened(result, path.rstrip("/"), _flags(text))
        elif call == "write" and int(text.partition(",")[0]) in acks:
            count += 1
            recording.acknowledged(count)
        else:
            _take(recording, call, text, result)


def _take(recording: Recording, call: str, text: str, result: int) -> None:
    first = text.partition(",")[0]
    match call:
        case "close":
            recording.closed(int(first))
        case "write" | "writev":
            recording.wrote(int(first), _data(text)[:result])
        case "pwrite64" | "pwritev":
            recording.wrote(int(first), _data(text)[:result], int(text.rpartition(",")[2]))
        case "lseek":
            recording.moved(int(first), result)
        case "ftruncate":
            recording.cut(int(first), int(text.rpartition(",")[2]))
        case "fsync" | "fdatasync":
            recording.synced(int(first))
        case "rename" | "renameat" | "renameat2":
            recording.renamed(*_paths(text)[:2])
        case "unlink" | "unlinkat":
            recording.removed(_paths(text)[0].rstrip("/"))
        case "mkdir" | "mkdirat":
            recording.made_folder(_paths(text)[0])
        case "link" | "linkat":
            recording.linked(*_paths(text)[:2])
        case _:
            assert call in ("dup", "msync"), call


def _paths(text: str) -> list[str]:
    return [os.fsdecode(_bytes(found)) for found in _TEXT.findall(text)]


def _data(text: str) -> bytes:
    return b"".join(_bytes(found) for found in _TEXT.findall(text))


def _bytes(found: str) -> bytes:
    value = ast.literal_eval(f'b"{found}"')
    assert isinstance(value, bytes)
    return value


def _flags(text: str) -> int:
    found = 0
    for name in re.findall(r"O_\w+", text):
        found |= getattr(os, name, 0)
    return found
