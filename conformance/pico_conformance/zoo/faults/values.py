"""Faults in values: versions, tombstones, policies and what a fork inherits."""

from __future__ import annotations

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import AfterCommit, Faulty, Lenient
from pico_memory.view import MemoryView
from pico_store.address import Address, ConversationAddress, Seq, SessionAddress, Shape
from pico_store.batch import ListClear, ListRemove, MainWrite, ValueDelete, ValueSet
from pico_store.errors import InvalidQueryError
from pico_store.query import BatchQuery
from pico_store.records import At, JsonValue, Version

Found = Version[JsonValue] | None


@plant("VAL-3")
class TombstoneLost(AfterCommit):
    """A delete of a rewindable value is forgotten; the version before shows again."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if not isinstance(write, ValueDelete) or not isinstance(write.address, ConversationAddress):
            return
        address = write.address
        cell = self.state.scopes[address.conversation].cell(address.namespace, address.key)
        if isinstance(cell, list) and len(cell) > 1:
            cell[:] = [version for version in cell if version[0] != seq] or cell


@plant("VAL-3", "FORK-5")
class TombstoneShowsInherited(Faulty):
    """A value that a fork deleted shows as the fork inherited it."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        found = self.storage.get_value(address, at)
        above = self.above(address, "value")
        if found is None and at is None and above is not None:
            return self.storage.get_value(*above)
        return found


@plant("VAL-3", "SEQ-1")
class DeleteOfNothingDropped(AfterCommit):
    """Deleting what is not present at a rewindable address records nothing."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if not isinstance(write, ValueDelete) or not isinstance(write.address, ConversationAddress):
            return
        address = write.address
        space = self.state.scopes[address.conversation].values[address.namespace]
        if space.cells.get(address.key) == [(seq, None)]:
            del space.cells[address.key]
            space.forget_order()


@plant("VAL-1", "VAL-9")
class PolicyGoneWithValue(AfterCommit):
    """A sticky value's policy is forgotten when it is deleted."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if not isinstance(write, ValueDelete) or not isinstance(write.address, ConversationAddress):
            return
        space = self.state.scopes[write.address.conversation].values[write.address.namespace]
        if space.cells.get(write.address.key) == (seq, None):
            del space.cells[write.address.key]
            space.forget_order()


@plant("VAL-1", "VAL-9")
class PolicyGoneWithElements(AfterCommit):
    """A sticky list's policy is forgotten when its last element goes."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if not isinstance(write, ListClear | ListRemove):
            return
        address = write.address
        if isinstance(address, ConversationAddress):
            lists = self.state.scopes[address.conversation].lists
            if lists.get((address.namespace, address.key)) == []:
                del lists[address.namespace, address.key]


@plant("VAL-1", "VAL-9")
class PolicyOfBothShapes(Faulty):
    """A value and a list of one name share their policy."""

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        found = self.storage.rewind_policy(address, shape)
        other: Shape = "list" if shape == "value" else "value"
        return self.storage.rewind_policy(address, other) if found is None else found


@plant("VAL-1", "VAL-9")
class PolicyInherited(Faulty):
    """A fork's unwritten address has the policy of its parent's."""

    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        found = self.storage.rewind_policy(address, shape)
        parent = None if found is not None else self.parent(address.conversation)
        if parent is None:
            return found
        above = ConversationAddress(parent.conversation_id, address.namespace, address.key)
        return self.storage.rewind_policy(above, shape)


class _NoPolicies(MemoryView):
    def rewind_policy(self, address: ConversationAddress, shape: Shape) -> bool | None:
        return None


@plant("VAL-1")
class PolicyUnchecked(Lenient):
    """An address may be written both ways."""

    view = _NoPolicies


@plant("VAL-1")
class PolicyIgnoredByReads(Faulty):
    """A read with another policy than the address's is answered."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        try:
            return self.storage.get_value(address, at)
        except InvalidQueryError as error:
            if error.clause != "VAL-1" or not isinstance(address, ConversationAddress):
                raise
            other = ConversationAddress(
                address.conversation, address.namespace, address.key, not address.rewind
            )
            return self.storage.get_value(other)


@plant("FORK-5", "VAL-8")
class StickyInherited(Faulty):
    """A fork shows its parent's sticky value where it has none."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        found = self.storage.get_value(address, at)
        if found is None and isinstance(address, ConversationAddress) and not address.rewind:
            parent = self.parent(address.conversation)
            if parent is not None:
                above = ConversationAddress(parent.conversation_id, address.namespace, address.key)
                if not self.storage.rewind_policy(above, "value"):
                    return self.storage.get_value(above)
        return found


@plant("FORK-5")
class RewindableNotInherited(Faulty):
    """A fork starts without its parent's rewindable values."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        found = self.storage.get_value(address, at)
        if isinstance(address, ConversationAddress) and address.rewind:
            written = self.storage.rewind_policy(address, "value") is not None
            return found if written else None
        return found


@plant("FORK-5", "FORK-2")
class InheritedAsOfNow(Faulty):
    """A fork shows of a value what its parent has by now, not what it had at the cut."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        found = self.storage.get_value(address, at)
        above = self.above(address, "value")
        if at is not None or above is None or not isinstance(address, ConversationAddress):
            return found
        written = self.storage.rewind_policy(address, "value") is not None
        return found if written else self.storage.get_value(above[0])


@plant("FORK-5", "FORK-6")
class OnlyParentInherited(Faulty):
    """A fork of a fork shows its parent's values, but not its grandparent's."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        found = self.storage.get_value(address, at)
        above = self.above(address, "value")
        if found is None or above is None or not isinstance(address, ConversationAddress):
            return found
        near = {address.conversation, above[0].conversation}
        for reader in near:
            own = ConversationAddress(reader, address.namespace, address.key)
            if self.storage.rewind_policy(own, "value"):
                return found
        return None


@plant("VAL-10")
class AncestorStickyHides(Faulty):
    """A parent's sticky value hides the rewindable one that its fork inherits."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        found = self.storage.get_value(address, at)
        if isinstance(address, ConversationAddress) and address.rewind:
            parent = self.parent(address.conversation)
            written = self.storage.rewind_policy(address, "value") is not None
            if parent is not None and not written:
                above = ConversationAddress(parent.conversation_id, address.namespace, address.key)
                return None if self.storage.rewind_policy(above, "value") is False else found
        return found


@plant("VAL-7")
class ValueAtIgnored(Faulty):
    """A value read at a position is the current one."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        self.storage.get_value(address, at)
        return self.storage.get_value(address)


@plant("VAL-7", "FORK-4")
class StartShowsInherited(Faulty):
    """At the start, a fork shows what it inherits."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        found = self.storage.get_value(address, at)
        above = self.above(address, "value")
        return self.storage.get_value(*above) if at == "start" and above is not None else found


@plant("VAL-7")
class StickyTakesPosition(Faulty):
    """A position on an address without history is ignored instead of refused."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        rewinds = isinstance(address, ConversationAddress) and address.rewind
        return self.storage.get_value(address, at if rewinds else None)


@plant("VAL-7")
class AnyPositionTaken(Faulty):
    """A position that is no visible entry is read as the present."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        try:
            return self.storage.get_value(address, at)
        except InvalidQueryError as error:
            if error.clause != "VAL-7" or type(at) is not int:
                raise
            return self.storage.get_value(address)


@plant("VAL-2")
class EqualSetSkipped(AfterCommit):
    """Setting the value that is there already makes no new version."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, ValueSet) and isinstance(write.address, ConversationAddress):
            address = write.address
            cell = self.state.scopes[address.conversation].cell(address.namespace, address.key)
            if isinstance(cell, list):
                pairs = list(zip(cell[1:], cell, strict=False))
                cell[1:] = [new for new, old in pairs if new[0] != seq or new[1] != old[1]]


@plant("VAL-7", "FORK-5")
class HistoryTrimmed(AfterCommit):
    """Only the newest three versions of a rewindable value are kept."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, ValueSet) and isinstance(write.address, ConversationAddress):
            address = write.address
            cell = self.state.scopes[address.conversation].cell(address.namespace, address.key)
            if isinstance(cell, list):
                del cell[:-3]


@plant("SEQ-1", "VAL-2")
class VersionNumberOfBatch(Faulty):
    """A value's version is the first number of its batch, not its write's own."""

    def get_value(self, address: Address, at: At | None = None) -> Found:
        found = self.storage.get_value(address, at)
        if found is None:
            return None
        query = BatchQuery(before=Seq(found.seq + 1), limit=1)
        return Version(self.storage.scan_batches(query).items[0].first, found.value)


@plant("VAL-1")
class ShapesShared(AfterCommit):
    """Deleting a session value empties the list of the same name."""

    def after(self, write: MainWrite, seq: Seq) -> None:
        if isinstance(write, ValueDelete) and isinstance(write.address, SessionAddress):
            self.state.session.lists.pop((write.address.namespace, write.address.key), None)
