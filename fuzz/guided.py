"""Strange bytes guided by coverage: `python -m fuzz.guided TARGET [options of libFuzzer]`.

The same harness as `fuzz.strange`, where `atheris` is installed, which the tests do not need.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Protocol, cast

from fuzz.attack import Fault
from fuzz.corpus import keep
from fuzz.strange import TARGETS, Harness


class _Atheris(Protocol):
    def instrument_all(self) -> None: ...
    def Setup(self, arguments: list[str], test: Callable[[bytes], None]) -> None: ...  # noqa: N802
    def Fuzz(self) -> None: ...  # noqa: N802


SEED = 1
"""Chooses what the inputs are met by."""


def main(arguments: list[str]) -> int:
    """Run until something is found, or as the options say."""
    if not arguments or arguments[0] not in TARGETS:
        print(f"name one of: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if find_spec("atheris") is None:
        print("atheris is not installed; `make fuzz` does without it", file=sys.stderr)
        return 2
    target, *options = arguments
    atheris = cast(_Atheris, import_module("atheris"))
    with Harness(target, SEED) as harness:

        def test(data: bytes) -> None:
            wrong = harness.take(data)
            if wrong:
                place = keep(Fault("bytes", target, SEED, wrong, data))
                raise AssertionError(f"{wrong}; kept in {place}")

        atheris.instrument_all()
        atheris.Setup([sys.argv[0], *options, harness.seeds()], test)
        atheris.Fuzz()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
