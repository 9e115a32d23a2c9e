"""Addresses as keys: their order is that of namespaces and keys by code point, whatever is in them.

After a prefix of fixed length (whose state it is) come a shape, the namespace with every NUL
followed by 0xFF, a NUL, and the key behind a 0x01, or nothing where there is no key.

LMDB's keys end at 511 bytes. Of a longer one the first 495 bytes are kept and 16 of a digest of
all; its row holds the rest, which a reader compares, and by which a scan brings rows with equal
first bytes into order.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from pico_store.address import Shape

KEY_BYTES_MAX: Final = 511
_DIGEST_BYTES: Final = 16
HEAD_BYTES: Final = KEY_BYTES_MAX - _DIGEST_BYTES
"""What is kept of a long key."""
_SHAPES: Final[dict[Shape, str]] = {"list": "l", "value": "v"}


def space(shape: Shape, namespace: str) -> bytes:
    """Return what the addresses of a namespace have behind the prefix."""
    if "\0" in namespace:
        return (_SHAPES[shape] + namespace).encode().replace(b"\0", b"\0\xff") + b"\0"
    return f"{_SHAPES[shape]}{namespace}\0".encode()


def address(shape: Shape, namespace: str, key: str | None) -> bytes:
    """Return what an address has behind the prefix."""
    if key is None:
        return space(shape, namespace)
    if "\0" in namespace:
        return space(shape, namespace) + b"\1" + key.encode()
    return f"{_SHAPES[shape]}{namespace}\0\1{key}".encode()


def split(name: bytes) -> tuple[Shape, str, str | None]:
    """Return the shape, namespace and key of an address, from what is behind the prefix."""
    shape: Shape = "list" if name[:1] == b"l" else "value"
    end = name.index(b"\0", 1)
    while name[end + 1 : end + 2] == b"\xff":
        end = name.index(b"\0", end + 2)
    namespace = name[1:end].replace(b"\0\xff", b"\0").decode()
    key = name[end + 1 :]
    return shape, namespace, key[1:].decode() if key else None


def fit(full: bytes) -> bytes:
    """Return the key under which LMDB keeps a whole key."""
    if len(full) <= HEAD_BYTES:
        return full
    return full[:HEAD_BYTES] + blake2b(full, digest_size=_DIGEST_BYTES).digest()


def rest(full: bytes) -> bytes | None:
    """Return what the row of a long key holds of it; ``None`` for one that is kept whole."""
    return None if len(full) <= HEAD_BYTES else full[HEAD_BYTES:]


def whole(key: bytes, kept: bytes | None) -> bytes:
    """Return the whole key of a row, from LMDB's key and what the row holds of it."""
    return key if kept is None else key[:HEAD_BYTES] + kept


def entry_key(kind: str, key: str) -> bytes:
    """Return the digest by which entries of a kind and key are found."""
    return blake2b(f"{len(kind)} {kind}{key}".encode(), digest_size=8).digest()
