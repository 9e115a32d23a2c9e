"""Faults in scans of values: their order, their cursor and whose keys they show."""

from __future__ import annotations

from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import Faulty, every_value, turned_values
from pico_store.address import ConversationAddress, Seq
from pico_store.query import ValueQuery
from pico_store.records import KeyedVersion, ValuePage


@plant("VAL-4")
class KeysInUtf16Order(Faulty):
    """Keys are ordered by UTF-16 unit, not by code point."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        items = every_value(self.storage, query)
        return turned_values(items, query, page.read_at, lambda key: key.encode("utf-16-be"))


@plant("VAL-4")
class KeysInDictionaryOrder(Faulty):
    """Keys are ordered without regard to case first."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        items = every_value(self.storage, query)
        return turned_values(items, query, page.read_at, lambda key: (key.casefold(), key))


@plant("PAGE-2", "VAL-4")
class ValueCursorSkips(Faulty):
    """The cursor of a scan of values is the next key, which the next page then leaves out."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        if page.next is None:
            return page
        following = self.storage.scan_values(replace(query, after=page.next, limit=1))
        return replace(page, next=following.items[0].key)


@plant("PAGE-2", "VAL-4")
class ValueCursorAlways(Faulty):
    """A full page of values has a cursor, whether or not another key follows."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        full = len(page.items) == query.limit
        return replace(page, next=page.items[-1].key) if full else page


@plant("PAGE-1", "VAL-4")
class ValueCursorInclusive(Faulty):
    """A scan of values begins with the cursor's own key."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        if query.after is None:
            return page
        items = [item for item in every_value(self.storage, query) if item.key >= query.after]
        return turned_values(items, replace(query, after=None), page.read_at)


@plant("VAL-4", "VAL-3")
class ScanRevivesDeleted(Faulty):
    """A key that a fork deleted is still listed as the fork inherited it."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        items = {item.key: item for item in every_value(self.storage, query)}
        above = self.above(_rewinding(query), "value")
        if above is None:
            return page
        for item in every_value(self.storage, ValueQuery(scope=above[0])):
            own = replace(_rewinding(query), key=item.key)
            if item.key not in items and self.storage.rewind_policy(own, "value"):
                items[item.key] = item
        return turned_values(list(items.values()), query, page.read_at)


@plant("VAL-4", "FORK-5")
class ScanAsOfNow(Faulty):
    """A scan shows inherited keys as the parent has them by now, not as of the cut."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        above = self.above(_rewinding(query), "value")
        if above is None:
            return page
        found = []
        for item in every_value(self.storage, query):
            source = self.above(replace(_rewinding(query), key=item.key), "value")
            if item.seq <= above[1] and source is not None:
                version = self.storage.get_value(source[0])
                if version is not None:
                    found.append(KeyedVersion(item.key, version.seq, version.value))
            else:
                found.append(item)
        return turned_values(found, query, page.read_at)


@plant("VAL-4", "FORK-5")
class ScanOfOwnKeys(Faulty):
    """A scan leaves out the keys that a fork inherits."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        if not isinstance(query.scope, ConversationAddress):
            return page
        items = [
            item
            for item in every_value(self.storage, query)
            if self.storage.rewind_policy(replace(query.scope, key=item.key), "value") is not None
        ]
        return turned_values(items, query, page.read_at)


@plant("VAL-4")
class ScanOfOnePolicy(Faulty):
    """A scan shows only the keys that rewind as its scope says."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        scope = query.scope
        if not isinstance(scope, ConversationAddress):
            return page
        items = [
            item
            for item in every_value(self.storage, query)
            if self.storage.rewind_policy(replace(scope, key=item.key), "value")
            in (None, scope.rewind)
        ]
        return turned_values(items, query, page.read_at)


@plant("VAL-4", "VAL-1")
class ScanShowsKeyless(Faulty):
    """A scan lists the value without a key as the one with the empty key."""

    def scan_values(self, query: ValueQuery) -> ValuePage:
        page = self.storage.scan_values(query)
        items = every_value(self.storage, query)
        scope = query.scope
        if isinstance(scope, ConversationAddress):
            scope = replace(scope, rewind=self.storage.rewind_policy(scope, "value") is not False)
        found = self.storage.get_value(scope)
        if found is None or any(item.key == "" for item in items):
            return page
        items.append(KeyedVersion("", found.seq, found.value))
        return turned_values(items, query, page.read_at)


def _rewinding(query: ValueQuery) -> ConversationAddress:
    """Return the scope as a rewindable address; of no conversation if it has none."""
    scope = query.scope
    if not isinstance(scope, ConversationAddress):
        return ConversationAddress(Seq(0), scope.namespace, rewind=True)
    return replace(scope, rewind=True)
