"""The part of py-lmdb that is used here, without buffers: keys and values are bytes.

py-lmdb's own types allow for buffers everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias, overload

import lmdb

Row: TypeAlias = tuple[bytes, bytes]
Tree: TypeAlias = lmdb._Database | None
"""A tree of an environment; the main one is ``None``."""


class Cursor(Protocol):
    """A place in a tree."""

    def set_range(self, key: bytes, /) -> bool:
        """Go to the least key that is not less than one."""
        ...

    def first(self) -> bool:
        """Go to the least key."""
        ...

    def last(self) -> bool:
        """Go to the greatest key."""
        ...

    def next(self) -> bool:
        """Go to the key behind."""
        ...

    def prev(self) -> bool:
        """Go to the key before."""
        ...

    def key(self) -> bytes:
        """Return the key; empty where there is none."""
        ...

    def item(self) -> Row:
        """Return the row."""
        ...

    def delete(self) -> bool:
        """Delete the row and go to the next."""
        ...

    def close(self) -> None:
        """Give it up."""
        ...

    @overload
    def iternext(self) -> Iterator[Row]: ...

    @overload
    def iternext(self, keys: Literal[True], values: Literal[False], /) -> Iterator[bytes]: ...

    def iternext(self, *parts: bool) -> Iterator[Row] | Iterator[bytes]:
        """Yield rows, or keys alone, from here on."""
        ...

    def iterprev(self) -> Iterator[Row]:
        """Yield rows from here back."""
        ...


class Transaction(Protocol):
    """A transaction."""

    def id(self) -> int:
        """Return its number; raises `lmdb.Error` once it has ended."""
        ...

    def get(self, key: bytes, default: None = ..., db: Tree = ..., /) -> bytes | None:
        """Return what a key holds."""
        ...

    def put(
        self,
        key: bytes,
        value: bytes,
        dupdata: bool = ...,  # noqa: FBT001
        overwrite: bool = ...,  # noqa: FBT001
        append: bool = ...,  # noqa: FBT001
        db: Tree = ...,
        /,
    ) -> bool:
        """Put a row; tell whether that was allowed."""
        ...

    def delete(self, key: bytes, value: bytes = ..., db: Tree = ..., /) -> bool:
        """Delete a row; tell whether it was there."""
        ...

    def cursor(self, db: Tree = ..., /) -> Cursor:
        """Return a cursor that is nowhere yet."""
        ...

    def stat(self, db: Tree, /) -> dict[str, int]:
        """Return the sizes of a tree."""
        ...

    def commit(self) -> None:
        """Make the changes count."""
        ...

    def abort(self) -> None:
        """Undo the changes."""
        ...
