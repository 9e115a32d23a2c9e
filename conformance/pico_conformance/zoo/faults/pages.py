"""Faults in pages: cursors, limits and reads by ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from pico_conformance.zoo.mutant import plant
from pico_conformance.zoo.wrapper import Faulty, Got, Paged, Query, T, every, number, turned, walked
from pico_store.address import Seq
from pico_store.errors import InvalidQueryError, UnknownConversationError
from pico_store.query import EntryQuery, TaskQuery
from pico_store.records import Entry, Page, Task


@plant("PAGE-2")
class CursorAlways(Paged):
    """A full page has a cursor, whether or not anything follows."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        full = len(page.items) == query.limit
        return replace(page, next=Seq(number(page.items[-1]))) if full else page


@plant("PAGE-2")
class CursorMissing(Paged):
    """A page has no cursor if only one more item follows."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        if page.next is None:
            return page
        backwards = query.before is not None and query.after is None
        bound = {"before": page.next} if backwards else {"after": page.next}
        left = scan(replace(query, limit=2, **bound)).items
        return replace(page, next=None) if len(left) == 1 else page


@plant("PAGE-2")
class CursorSkips(Paged):
    """The cursor is the first item of the next page, which that page then leaves out."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        if page.next is None:
            return page
        backwards = query.before is not None and query.after is None
        bound = {"before": page.next} if backwards else {"after": page.next}
        return replace(page, next=Seq(number(scan(replace(query, limit=1, **bound)).items[0])))


@plant("PAGE-1")
class AfterInclusive(Paged):
    """A page begins with the item that ``after`` names."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        return page if query.after is None else scan(replace(query, after=Seq(query.after - 1)))


@plant("PAGE-1")
class BeforeInclusive(Paged):
    """A page ends with the item that ``before`` names."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        return page if query.before is None else scan(replace(query, before=Seq(query.before + 1)))


@plant("PAGE-1")
class BeforeFromOldest(Paged):
    """``before`` alone gives the oldest below it, ascending."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        scan(query)
        return scan(replace(query, after=Seq(0))) if query.after is None else scan(query)


@plant("PAGE-1")
class BeforeAscending(Paged):
    """``before`` alone gives the newest below it, but ascending."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        if query.before is None or query.after is not None:
            return page
        return replace(page, items=page.items[::-1])


@plant("PAGE-1")
class WindowDescending(Paged):
    """A window of ``after`` and ``before`` runs newest first."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        if query.before is None or query.after is None:
            return page
        items = [item for item in every(scan, query) if number(item) > query.after]
        return turned(items, replace(query, after=None), page.read_at)


@plant("PAGE-3")
class LimitNotClamped(Paged):
    """A limit of more than 10,000 is granted."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        if query.limit <= 10_000 or page.next is None:
            return page
        return replace(page, items=every(scan, query)[: query.limit], next=None)


@plant("PAGE-3")
class LargeLimitRefused(Paged):
    """A limit of more than 10,000 is refused."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        if query.limit > 10_000:
            raise InvalidQueryError("PAGE-3", "limit", f"{query.limit}; allowed: up to 10,000")
        return page


@plant("PAGE-3")
class LimitZeroTaken(Paged):
    """A limit of 0 gives an empty page."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        if type(query.limit) is not int or query.limit != 0:
            return scan(query)
        return replace(scan(replace(query, limit=1)), items=[], next=None)


@plant("PAGE-3")
class LimitTrueTaken(Paged):
    """A limit of True is 1."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        return scan(replace(query, limit=1) if query.limit is True else query)


@plant("PAGE-3")
class LimitFloatTaken(Paged):
    """A limit of 2.0 is 2."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        return scan(replace(query, limit=int(query.limit)) if query.limit == 2.0 else query)


@plant("PAGE-1", "PAGE-3")
class NegativeCursorRefused(Paged):
    """A cursor below 0 is refused."""

    def page(self, scan: Callable[[Query], Page[T]], query: Query) -> Page[T]:
        page = scan(query)
        if (query.after or 0) < 0 or (query.before or 0) < 0:
            raise InvalidQueryError("PAGE-3", "after", "below 0; allowed: 0 and more")
        return page


@plant("PAGE-6")
class GotSorted(Got):
    """Reads by ids answer in the order of ids, not as asked."""

    def get(
        self, read: Callable[[Iterable[Seq]], dict[Seq, T]], ids: Iterable[Seq]
    ) -> dict[Seq, T]:
        found = read(ids)
        return {id: found[id] for id in sorted(found)}


@plant("PAGE-6")
class GotInOrderOfLast(Got):
    """A repeated id counts where it is named last."""

    def get(
        self, read: Callable[[Iterable[Seq]], dict[Seq, T]], ids: Iterable[Seq]
    ) -> dict[Seq, T]:
        wanted = list(ids)
        found = read(wanted)
        order = list(dict.fromkeys(reversed(wanted)))[::-1]
        return {id: found[id] for id in order if id in found}


@plant("PAGE-6")
class GotTwice(Got):
    """Reads by ids walk through the ids twice, which an iterator does not survive."""

    def get(
        self, read: Callable[[Iterable[Seq]], dict[Seq, T]], ids: Iterable[Seq]
    ) -> dict[Seq, T]:
        given: object = ids
        for _ in given if isinstance(given, Iterable) else ():
            pass
        return read(ids)


@plant("PAGE-6")
class GotNoMoreThanEngineTakes(Got):
    """Reads by ids answer for the first 999 ids, as many as a statement takes."""

    def get(
        self, read: Callable[[Iterable[Seq]], dict[Seq, T]], ids: Iterable[Seq]
    ) -> dict[Seq, T]:
        found = read(ids)
        return dict(list(found.items())[:999])


@plant("PAGE-6")
class BoolIdTaken(Got):
    """The id True is 1."""

    def get(
        self, read: Callable[[Iterable[Seq]], dict[Seq, T]], ids: Iterable[Seq]
    ) -> dict[Seq, T]:
        wanted: object = walked(ids)
        if isinstance(wanted, list):
            wanted = [1 if id is True else id for id in wanted]
        return read(wanted)  # type: ignore[arg-type]


@plant("PAGE-6")
class UnknownIdRefused(Got):
    """Reads by ids are refused if one id is unknown."""

    def get(
        self, read: Callable[[Iterable[Seq]], dict[Seq, T]], ids: Iterable[Seq]
    ) -> dict[Seq, T]:
        wanted = walked(ids)
        found = read(wanted)
        for id in wanted:
            if id not in found:
                raise InvalidQueryError("PAGE-6", "ids", f"{id} is unknown")
        return found


@plant("PAGE-6")
class UnknownScanIsEmpty(Faulty):
    """A scan of a conversation that does not exist is an empty page."""

    def scan_entries(self, query: EntryQuery) -> Page[Entry]:
        try:
            return self.storage.scan_entries(query)
        except UnknownConversationError:
            return Page([], self.storage.last_seq)


@plant("PAGE-6")
class UnknownTaskScanIsEmpty(Faulty):
    """Conversations that do not exist are passed over by a scan of tasks."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        try:
            return self.storage.scan_tasks(query)
        except UnknownConversationError:
            known = self.storage.get_conversations(query.conversation_ids or ())
            return self.storage.scan_tasks(replace(query, conversation_ids=tuple(known)))


@plant("PAGE-6")
class NoConversationsIsAll(Faulty):
    """A scan of the tasks of no conversations finds those of all."""

    def scan_tasks(self, query: TaskQuery) -> Page[Task]:
        page = self.storage.scan_tasks(query)
        if query.conversation_ids != ():
            return page
        return self.storage.scan_tasks(replace(query, conversation_ids=None))
