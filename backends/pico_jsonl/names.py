"""Folder names for session ids: any id, no two alike, none that leads elsewhere."""

from __future__ import annotations

import hashlib
from typing import Final

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-")
# File systems allow 255 bytes.
_WHOLE_MAX: Final = 200
_START: Final = 100


def folder_name(session_id: str) -> str:
    """Return the name of a session's folder.

    Lower-case letters, digits, ``_`` and ``-`` stand for themselves, any other byte of the id's
    UTF-8 is ``%`` and two lower-case hexadecimal digits; so names also differ where a file system
    ignores case or normalizes. A name that would be too long is cut and ends in ``~`` and the
    SHA-256 of the id; ``~`` occurs nowhere else.

    Source: SPEC.md, DUR-3; docs/reference/format-jsonl.md.
    """
    text = session_id.encode()
    name = "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in text)
    if len(name) <= _WHOLE_MAX:
        return name
    return f"{name[:_START]}~{hashlib.sha256(text).hexdigest()}"
