"""The bounds of the contract (SPEC.md, SEQ-2, PAGE-3, JSON-4, JSON-5)."""

from __future__ import annotations

from typing import Final

SEQ_MAX: Final = 2**53 - 1
PAGE_ITEMS_MAX: Final = 10_000
NAME_BYTES_MAX: Final = 1_024
VALUE_BYTES_MAX: Final = 64 << 20
"""The size of one value, entry or task state, as compact JSON in UTF-8."""
BATCH_BYTES_MAX: Final = 256 << 20
BATCH_WRITES_MAX: Final = 10_000
DEPTH_MAX: Final = 200
"""Nested lists and objects; a scalar is 0 deep."""
INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**64 - 1
