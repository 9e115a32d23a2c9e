"""The entries that one conversation wrote itself, by number, kind, key and head."""

from __future__ import annotations

from pico_store.address import Seq


class Transcript:
    """Ascending ids of a conversation's own entries."""

    __slots__ = ("heads", "ids", "keys", "kinds")

    def __init__(self) -> None:
        self.ids: list[Seq] = []
        self.heads: list[Seq] = []
        """Those that have a head."""
        self.kinds: dict[str, list[Seq]] = {}
        self.keys: dict[tuple[str, str], list[Seq]] = {}

    def add(self, id: Seq, kind: str, key: str | None, head: Seq | None) -> None:
        """Append an entry."""
        self.ids.append(id)
        found = self.kinds.get(kind)
        if found is None:
            self.kinds[kind] = [id]
        else:
            found.append(id)
        if key is not None:
            self.keys.setdefault((kind, key), []).append(id)
        if head is not None:
            self.heads.append(id)

    def cut(self, id: Seq, kind: str, key: str | None) -> None:
        """Undo the append of an entry, however far it came; it is the newest."""
        ids = [self.ids, self.heads, self.kinds.get(kind)]
        if key is not None:
            ids.append(self.keys.get((kind, key)))
        for listed in ids:
            if listed and listed[-1] == id:
                listed.pop()

    def named(self, kind: str | None, key: str | None) -> list[Seq]:
        """Return the ids of all entries, of a kind, or of a kind and key."""
        if kind is None:
            return self.ids
        if key is None:
            return self.kinds.get(kind, [])
        return self.keys.get((kind, key), [])
