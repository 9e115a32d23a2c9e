"""Reads of a session that has some turns, on every backend."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import ClassVar

from pico_bench.turns import ROOT, USAGE, Turns, opening
from pico_store.address import Seq
from pico_store.backends import open_store
from pico_store.digest import digest
from pico_store.query import EntryQuery, ListQuery, TaskQuery

_TURNS = 100


class Read:
    """What reads cost."""

    params: ClassVar[list[str]] = ["memory:", "sqlite:"]
    param_names: ClassVar[list[str]] = ["backend"]

    def setup(self, backend: str) -> None:
        """Make the session."""
        self.folder = TemporaryDirectory()
        path = "" if backend == "memory:" else f"{self.folder.name}/reads.db"
        self.store = open_store(backend + path)
        self.storage = self.store.create("reads")
        self.storage.commit(opening())
        load = Turns()
        for _ in range(_TURNS):
            for batch in load.turn():
                self.storage.commit(batch)
        self.last = self.storage.last_seq
        entries = self.storage.scan_entries(EntryQuery(conversation_id=ROOT)).items
        self.ids = [entry.id for entry in entries[:50]]

    def teardown(self, backend: str) -> None:
        """Close and remove it."""
        self.store.close()
        self.folder.cleanup()

    def time_newest_page(self, backend: str) -> None:
        """Read the newest 50 entries."""
        before = Seq(self.last + 1)
        self.storage.scan_entries(EntryQuery(conversation_id=ROOT, before=before, limit=50))

    def time_get_entries(self, backend: str) -> None:
        """Read 50 entries by their ids."""
        self.storage.get_entries(self.ids)

    def time_newest_head(self, backend: str) -> None:
        """Look for a head where there is none."""
        self.storage.newest_head(ROOT, self.last)

    def time_live_tasks(self, backend: str) -> None:
        """Look for live tasks among terminal ones."""
        self.storage.scan_tasks(TaskQuery(live=True))

    def time_list_page(self, backend: str) -> None:
        """Read the newest 50 elements of a list."""
        self.storage.read_list(USAGE, ListQuery(before=Seq(self.last + 1), limit=50))

    def time_digest(self, backend: str) -> None:
        """Read everything there is."""
        digest(self.storage.export())
