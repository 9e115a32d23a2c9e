"""Where the installed `pico` command begins: Ctrl-C ends it quietly from its first import on."""

from __future__ import annotations

import sys
from importlib import import_module

_INTERRUPTED = 130


def main() -> int:
    """Run `pico_store.cli.main`, which takes a tenth of a second to import."""
    try:
        code = import_module("pico_store.cli").main()
    except KeyboardInterrupt:
        # Before the command could say so itself, or after it had.
        print("pico: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return int(code)
