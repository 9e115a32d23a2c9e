"""Faults in export and load: what a stream leaves out, and what is lost on the way back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import UNSET
from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import Faulty, FaultyStore
from pico_store.address import ConversationAddress, ScratchAddress
from pico_store.errors import RefusedError
from pico_store.records import BatchRange, Entry, Task
from pico_store.snapshot import (
    AddressPolicy,
    DeletedConversation,
    ListMarker,
    SnapshotHeader,
    SnapshotItem,
    ValueVersion,
)


class Streamed(Faulty):
    """Exports other items than there are."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        """Return what is exported instead."""
        raise NotImplementedError

    def export(self) -> Iterator[SnapshotItem]:
        return iter(self.items(list(self.storage.export())))


@plant("DUR-10")
class ExportWithoutTombstones(Streamed):
    """An export leaves out that a rewindable value was deleted."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        return [i for i in items if not (isinstance(i, ValueVersion) and i.value is UNSET)]


@plant("DUR-10")
class ExportWithoutMarkers(Streamed):
    """An export leaves out removals and clears of lists."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        return [item for item in items if not isinstance(item, ListMarker)]


@plant("DUR-10")
class ExportWithoutScratch(Streamed):
    """An export leaves out the scratch values of live tasks."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        return [
            item
            for item in items
            if not (isinstance(item, ValueVersion) and isinstance(item.address, ScratchAddress))
        ]


@plant("DUR-10", "VAL-1")
class ExportWithoutBarePolicies(Streamed):
    """An export leaves out the policy of a value that was deleted."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        held = {item.address for item in items if isinstance(item, ValueVersion)}
        return [
            item
            for item in items
            if not isinstance(item, AddressPolicy) or item.shape == "list" or item.address in held
        ]


@plant("DUR-10")
class ExportUnsorted(Streamed):
    """An export orders policies by namespace first."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        policies = [item for item in items if isinstance(item, AddressPolicy)]
        policies.sort(key=lambda item: (item.address.namespace, item.address.conversation))
        order = iter(policies)
        return [next(order) if isinstance(item, AddressPolicy) else item for item in items]


@plant("DUR-10")
class ExportPolicyWithoutRewind(Streamed):
    """An export does not say which way a policy goes."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        return [
            replace(item, address=replace(item.address, rewind=False))
            if isinstance(item, AddressPolicy)
            else item
            for item in items
        ]


@plant("DUR-10", "TASK-5")
class ExportOfDerived(Streamed):
    """An export writes down which conversations a task owns."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        tasks = self.storage.get_tasks(item.id for item in items if isinstance(item, Task))
        return [tasks[item.id] if isinstance(item, Task) else item for item in items]


@plant("DUR-10", "DEL-4")
class ExportWithoutDeleted(Streamed):
    """An export leaves out deleted conversations that forks inherit from."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        return [item for item in items if not isinstance(item, DeletedConversation)]


@plant("DUR-10", "PAGE-10")
class ExportKindsAsMet(Streamed):
    """An export lists entry kinds as they were first met, not by code point."""

    def items(self, items: list[SnapshotItem]) -> Iterable[SnapshotItem]:
        header = items[0]
        assert isinstance(header, SnapshotHeader)
        met = dict.fromkeys(item.kind for item in items if isinstance(item, Entry))
        kinds = (*met, *(kind for kind in header.entry_kinds if kind not in met))
        return [replace(header, entry_kinds=kinds), *items[1:]]


@plant("DUR-10", "SEQ-10")
class ExportSeesCommits(Faulty):
    """An export sees what is committed while it is read."""

    def export(self) -> Iterator[SnapshotItem]:
        return self._live(iter(self.storage.export()))

    def _live(self, items: Iterator[SnapshotItem]) -> Iterator[SnapshotItem]:
        yield next(items)
        later = iter(self.storage.export())
        next(later)
        yield from later


@plant("DUR-11", "SEQ-1")
class LoadLosesGap(FaultyStore):
    """A loaded session goes on after its last batch, even if its numbers went further."""

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        found = list(items)
        batches = [item for item in found if isinstance(item, BatchRange)]
        if batches and isinstance(found[0], SnapshotHeader):
            found[0] = replace(found[0], last_seq=min(batches[-1].last, found[0].last_seq))
        self.store.load(session_id, found)


@plant("DUR-11", "SEQ-9")
class LoadLosesBoundaries(FaultyStore):
    """A loaded session has one batch where there were many."""

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        found = list(items)
        main = [item for item in found if isinstance(item, BatchRange)]
        if len(main) > 1 and all(batch.task is None for batch in main) and main[0].first == 1:
            found = [item for item in found if not isinstance(item, BatchRange)]
            found.append(BatchRange(main[0].first, main[-1].last))
        self.store.load(session_id, found)


@plant("DUR-11", "PAGE-10")
class LoadForgetsKinds(FaultyStore):
    """A loaded session knows only the kinds of the entries that are left."""

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        found = list(items)
        kinds = {item.kind for item in found if isinstance(item, Entry)}
        if found and isinstance(found[0], SnapshotHeader):
            kept = tuple(kind for kind in found[0].entry_kinds if kind in kinds)
            found[0] = replace(found[0], entry_kinds=kept)
        self.store.load(session_id, found)


@plant("DUR-11", "TASK-3")
class LoadForgetsAbort(FaultyStore):
    """A loaded task has no abort mark."""

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        found = [replace(i, abort=False) if isinstance(i, Task) else i for i in items]
        self.store.load(session_id, found)


@plant("DUR-11", "VAL-1")
class LoadForgetsSticky(FaultyStore):
    """A loaded session has no policy where a sticky value was deleted."""

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        found = list(items)
        held = {
            item.address
            for item in found
            if isinstance(item, ValueVersion) and isinstance(item.address, ConversationAddress)
        }
        self.store.load(
            session_id,
            [
                item
                for item in found
                if not isinstance(item, AddressPolicy)
                or item.shape == "list"
                or item.address.rewind
                or item.address in held
            ],
        )


@plant("DUR-11", "SEQ-5")
class LoadLeavesHalf(FaultyStore):
    """A load that is refused leaves an empty session behind."""

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        try:
            self.store.load(session_id, items)
        except RefusedError as error:
            if error.clause == "DUR-11":
                self.store.create(session_id).close()
            raise


@plant("DUR-11", "OWN-6")
class LoadReplaces(FaultyStore):
    """A load over a session that exists replaces it."""

    def load(self, session_id: str, items: Iterable[SnapshotItem]) -> None:
        found = list(items)
        for info in self.store.sessions():
            if info.id == session_id and info.owner is None:
                self.store.delete(session_id)
        self.store.load(session_id, found)
