"""`pico verify` on a store, for a process that must not be the one that a damaged map ends."""

from __future__ import annotations

import sys

from pico_store.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["verify", *sys.argv[1:]]))
