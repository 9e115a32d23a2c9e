"""Stopping a process at its system calls, by ptrace."""

from __future__ import annotations

import ctypes
import os
import signal
from functools import cache
from typing import Final

_TRACE_ME: Final = 0
_SYSCALL: Final = 24
_SET_OPTIONS: Final = 0x4200
# Stops at system calls are told apart from signals, and nothing outlives who traces it.
_OPTIONS: Final = 0x1 | 0x100000
_AT_SYSCALL: Final = signal.SIGTRAP | 0x80


def _ptrace(request: int, pid: int, data: int) -> int:
    libc = _libc()
    result: int = libc.ptrace(request, pid, 0, data)
    return result


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    libc.ptrace.restype = ctypes.c_long
    return libc


def wait_to_be_traced() -> None:
    """Stop this process until its parent, from now on its tracer, lets it go on."""
    _ptrace(_TRACE_ME, 0, 0)
    os.kill(os.getpid(), signal.SIGSTOP)


def let_go_on(pid: int, stops: int) -> bool:
    """Let a process that waits to be traced go on, up to its n-th stop at a system call.

    Each call stops it twice, before it is made and when it is done.

    Returns:
        False: it has ended before, and was waited for.
    """
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        return False
    _ptrace(_SET_OPTIONS, pid, _OPTIONS)
    pending = 0
    while stops > 0:
        _ptrace(_SYSCALL, pid, pending)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            return False
        at_syscall = os.WSTOPSIG(status) == _AT_SYSCALL
        pending = 0 if at_syscall else os.WSTOPSIG(status)
        stops -= at_syscall
    return True


@cache
def can_trace() -> bool:
    """Tell whether this machine lets a process trace its child."""
    try:
        pid = os.fork()
        if pid == 0:
            try:
                wait_to_be_traced()
                os.getppid()
            finally:
                os._exit(0)
        alive = let_go_on(pid, 2)
        if alive:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    except (OSError, AttributeError):
        return False
    return alive
