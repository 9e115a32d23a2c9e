"""How the demo shows what it does, and fails where something does not hold."""

from __future__ import annotations

import contextlib
import io

from pico_store.cli import main as pico

LINES_SHOWN = 16


class DemoError(Exception):
    """Something that the demo claims does not hold."""


def heading(text: str) -> None:
    """Print what comes next."""
    print(f"\n== {text}")


def run(*arguments: str, shown: int = LINES_SHOWN) -> str:
    """Run a `pico` command, print it with the beginning of its output, and return that whole."""
    print(f"\n$ pico {' '.join(arguments)}")
    captured = io.StringIO()
    with contextlib.redirect_stdout(captured):
        code = pico(arguments)
    output = captured.getvalue()
    lines = output.splitlines()
    if code:
        print(output)
        raise DemoError(f"pico {arguments[0]} ended with {code}")
    for line in lines[:shown]:
        print(line)
    if shown and len(lines) > shown:
        print(f"  ... {len(lines) - shown} more lines")
    return output


def expect(holds: bool, claim: str) -> None:  # noqa: FBT001 - the claim reads after its proof
    """Fail the demo unless a claim holds."""
    if not holds:
        raise DemoError(f"this does not hold: {claim}")
