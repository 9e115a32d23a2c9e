"""Where the installed `pico` command begins: Ctrl-C ends it quietly from its first import on."""

from __future__ import annotations

import sys
from importlib import import_module

from pico_store.interruption import came, raised_again

_INTERRUPTED = 130


def main() -> int:
    """Run `pico_store.cli.main`, which takes a tenth of a second to import."""
    try:
        with raised_again():
            code = int(import_module("pico_store.cli").main())
            if came():
                code = 128 + came()
    except KeyboardInterrupt:
        # Before the command could say so itself, or after it had.
        print("pico: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return code
