"""Calls of LMDB's to the system fail, by `strace`: the n-th of a kind, once or from then on."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random
from typing import Final

import msgspec

from fuzz.attack import Attempt
from fuzz.injected_run import Told
from fuzz.place import LEVELS, environment, folder, store_at
from fuzz.recovery import check_prefix, is_there
from fuzz.script import make_script
from pico_store.errors import PicoError

_CALLS: Final = ("pwrite64", "pwrite64", "writev", "fdatasync", "ftruncate", "fsync")
_CODES: Final = ("EIO", "ENOSPC")


def attempt(backend: str, seed: int) -> Attempt:
    """Let one call fail in a process that commits one history, and open what that leaves."""
    random = Random(seed)
    level = random.choice(LEVELS)
    call, code = random.choice(_CALLS), random.choice(_CODES)
    when = f"{random.randint(1, random.choice((4, 30)))}{random.choice(('', '+'))}"
    done = Attempt(1)
    with folder() as where:
        path = os.path.join(where, "store")
        command = ["strace", "-f", "-o", os.devnull, "-e", f"trace={call}"]
        command += ["-e", f"inject={call}:error={code}:when={when}"]
        command += [sys.executable, "-m", "fuzz.injected_run", backend, path, level, str(seed)]
        ran = subprocess.run(command, capture_output=True, env=environment(), check=False)
        place = f"{call} {when} fails with {code}, level {level}"
        if ran.returncode or not ran.stdout:
            words = ran.stderr.decode(errors="replace").strip()[-600:]
            done.failures.append(f"the process ended with {ran.returncode}: {words} ({place})")
            return done
        told = msgspec.json.decode(ran.stdout.splitlines()[-1], type=Told)
        wrong = _judge(told, "+" in when) or _open(backend, path, seed, told)
        if wrong:
            done.failures.append(f"{wrong} (after {told.error}: {told.message}; {place})")
    return done


def _judge(told: Told, for_good: bool) -> str:  # noqa: FBT001 - the one thing to say of it
    if not told.is_ours:
        return f"commit raises {told.error}"
    if not told.is_open:
        return ""
    if told.error == "CommitUncertainError" and told.again != "StorageFaultedError":
        return f"after an uncertain failure, a commit came to {told.again or 'an end'}"
    if told.error and told.is_certain and told.again and not for_good:
        return f"after a certain failure that is over, a commit raises {told.again}"
    return ""


def _open(backend: str, path: str, seed: int, told: Told) -> str:
    """Open the store where calls work again, and compare."""
    script = make_script(seed)
    try:
        store = store_at(backend, path)
    except PicoError as error:
        return f"the store does not open: {type(error).__name__}: {error}"
    try:
        if not told.there and not is_there(store):
            return ""
        # An uncertain one may be there; so may what a second try left uncertain.
        more = 1 if told.error and told.there < len(script.batches) else 0
        return check_prefix(store, script, told.there, told.there + more)[1]
    finally:
        store.close()
