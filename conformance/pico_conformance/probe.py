"""Questions and answers, and reads at random positions to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import NamedTuple

import msgspec

from pico_conformance.ground import forged
from pico_conformance.model import Model
from pico_conformance.model_state import State
from pico_conformance.sample import KINDS, ODD_NAMES, ODD_STRINGS, PLAIN_NAMES
from pico_store.address import (
    Address,
    ConversationAddress,
    ScratchAddress,
    Seq,
    SessionAddress,
)
from pico_store.errors import PicoError, RefusedError
from pico_store.query import (
    BatchQuery,
    ConversationQuery,
    EntryQuery,
    ListQuery,
    TaskQuery,
    ValueQuery,
)
from pico_store.records import At, Entry

_encode = msgspec.json.Encoder().encode
_PAST = (0, -1, 2**53 - 1, 2**53, 2**63, 2**64, -(2**63) - 1)


class Read(NamedTuple):
    """One question to a session."""

    method: str
    args: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.method}({', '.join(map(repr, self.args))})"


class Answer(NamedTuple):
    """What came back, in a form in which ``1``, ``1.0`` and ``True`` differ."""

    value: object
    """The result; an error's class instead if it raised."""
    text: bytes
    """The result as JSON, where objects keep the order of their keys; an error's clause."""

    def fits(self, expected: Answer) -> bool:
        """Tell whether an answer is what was expected."""
        if isinstance(expected.value, type):
            return self.value is expected.value and expected.text in (b"", self.text)
        return self.text == expected.text and self.value == expected.value

    def __str__(self) -> str:
        if isinstance(self.value, type):
            return f"{self.value.__name__} ({self.text.decode()})"
        return repr(self.value)


def ask(reader: object, read: Read) -> Answer:
    """Put a question and return the answer, a refusal included.

    An error that the contract does not name is an answer too, one that never fits.
    """
    method: Callable[..., object] = getattr(reader, read.method)
    try:
        value = method(*read.args)
    except RefusedError as error:
        return Answer(type(error), error.clause.encode())
    except PicoError as error:
        return Answer(type(error), str(error).encode())
    except Exception as error:  # noqa: BLE001 - a third party's backend may raise anything
        return Answer(type(error), f"{error!s:.300}".encode("utf-8", "replace"))
    return Answer(value, _text(value))


def names_unknown(state: State, read: Read) -> bool:
    """Tell whether a read names a conversation that is not live.

    If something else is wrong with it too, the contract does not say what it is refused for.
    """
    named: list[object] = [read.args[0]] if read.method == "newest_head" else []
    for arg in read.args:
        if isinstance(arg, EntryQuery):
            named.append(arg.conversation_id)
        elif isinstance(arg, TaskQuery):
            named += arg.conversation_ids or ()
        elif isinstance(arg, ValueQuery | ConversationAddress):
            address = arg.scope if isinstance(arg, ValueQuery) else arg
            named += [address.conversation] if isinstance(address, ConversationAddress) else []
    return any(not isinstance(id, int) or not state.is_live(id) for id in named)


def _text(value: object) -> bytes:
    if isinstance(value, frozenset):
        return _encode(sorted(value))
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return f"not encodable: {error}".encode("utf-8", "replace")


# --- Some reads ---


def some_reads(model: Model, random: Random, count: int) -> Iterator[Read]:
    """Yield reads at random positions, with random cursors, filters and limits."""
    kinds = random.choices(_KINDS_OF_READ, _WEIGHTS, k=count)
    for kind in kinds:
        yield kind(model.state, random)


def _position(state: State, random: Random) -> Seq:
    choice = random.random()
    if choice < 0.05:
        return Seq(random.choice(_PAST))
    if choice < 0.5 and state.entries:
        return Seq(random.choice(list(state.entries)) + random.choice((-1, 0, 0, 1)))
    return Seq(random.randint(0, min(state.last_seq + 1, 2**53)))


def _conversation(state: State, random: Random) -> Seq:
    if state.conversations and random.random() < 0.97:
        return random.choice(list(state.conversations))
    return _position(state, random)


def _record(state: State, random: Random) -> Seq:
    pool = random.choice((state.conversations, state.entries, state.tasks))
    if pool and random.random() < 0.85:
        return random.choice(list(pool))
    return _position(state, random)


def _cursors(state: State, random: Random) -> dict[str, Seq]:
    found: dict[str, Seq] = {}
    choice = random.random()
    if choice < 0.25 or choice > 0.9:
        found["after"] = _position(state, random)
    if 0.2 < choice < 0.45 or choice > 0.9:
        found["before"] = _position(state, random)
    return found


def _limit(random: Random, *, good: bool = False) -> int:
    """Return a limit; never a bad one where something else may be wrong with the read."""
    if not good and random.random() < 0.03:
        odd: int = random.choice((0, -1, True, 2.0, None, 10_001, 2**64))  # type: ignore[assignment]
        return odd
    return random.choice((1, 1, 2, 3, 5, 100))


def _get(state: State, random: Random) -> Read:
    method = random.choice(("get_conversations", "get_entries", "get_entries", "get_tasks"))
    pools: dict[str, Iterable[Seq]] = {
        "get_conversations": state.conversations,
        "get_entries": state.entries,
        "get_tasks": state.tasks,
    }
    pool = list(pools[method])
    ids: list[object] = [*random.choices(pool, k=random.randrange(4))] if pool else []
    ids.append(_record(state, random))
    if random.random() < 0.05:
        ids.append(random.choice((True, 1.0, "1", 2**70)))
    return Read(method, (tuple(ids),))


def _scan_entries(state: State, random: Random) -> Read:
    filters: dict[str, object] = {}
    entry = random.choice(list(state.entries.values())) if state.entries else None
    if entry is not None and random.random() < 0.4:
        filters["kind"] = entry.kind
        if random.random() < 0.4:
            filters["key"] = entry.key
        if filters.get("key") is None and random.random() < 0.1:
            filters["kind"] = random.choice((*KINDS, *ODD_NAMES))
    if random.random() < 0.02:
        filters = {"key": "k"}
    if random.random() < 0.2:
        filters["from_"] = _position(state, random)
    if random.random() < 0.2:
        filters["through"] = _position(state, random)
    limit = _limit(random, good="kind" not in filters)
    query = EntryQuery(conversation_id=_conversation(state, random), limit=limit)
    query = forged(query, **_cursors(state, random), **filters)
    return Read("scan_entries", (query,))


def _newest_head(state: State, random: Random) -> Read:
    return Read("newest_head", (_conversation(state, random), _position(state, random)))


def _scan_conversations(state: State, random: Random) -> Read:
    filters: dict[str, Seq] = {}
    for name in ("parent", "owner", "owner_conversation"):
        if random.random() < 0.25:
            pool = state.tasks if name == "owner" else state.conversations
            filters[name] = random.choice(list(pool)) if pool else Seq(1)
            if random.random() < 0.1:
                filters[name] = _position(state, random)
    query = ConversationQuery(limit=_limit(random), **_cursors(state, random), **filters)
    return Read("scan_conversations", (query,))


def _scan_tasks(state: State, random: Random) -> Read:
    filters: dict[str, object] = {}
    for name in ("live", "abort", "background", "turn"):
        if random.random() < 0.2:
            filters[name] = random.random() < 0.5
    if random.random() < 0.15:
        filters["role"] = random.choice(("start", "inflight", "terminal"))
    if state.tasks and random.random() < 0.15:
        filters["kind"] = random.choice(list(state.tasks.values())).kind
    if random.random() < 0.4:
        count = random.randrange(4)
        filters["conversation_ids"] = tuple(_conversation(state, random) for _ in range(count))
    query = forged(TaskQuery(limit=_limit(random)), **_cursors(state, random), **filters)
    return Read("scan_tasks", (query,))


def _scan_batches(state: State, random: Random) -> Read:
    query = BatchQuery(limit=_limit(random), **_cursors(state, random))
    return Read("scan_batches", (query,))


def _address(state: State, random: Random, shape: str) -> Address:
    """Return an address that was written, or one like it."""
    spots = [where for where in state.changes if where.shape == shape]
    if not spots or random.random() < 0.05:
        return random.choice(
            (
                SessionAddress(
                    random.choice((*PLAIN_NAMES, *ODD_NAMES)), random.choice((None, "k"))
                ),
                ConversationAddress(_conversation(state, random), "a", rewind=True),
                ScratchAddress(_record(state, random), "a", random.choice((None, *ODD_STRINGS))),
            )
        )
    where = random.choice(spots)
    address = state.changes[where][0].write.address
    choice = random.random()
    if isinstance(address, ConversationAddress) and choice < 0.55:
        # What a conversation wrote, read from a fork or from its parent; or with another policy.
        reader = _relative(state, random, address.conversation)
        rewind = not address.rewind if choice < 0.05 else address.rewind
        return ConversationAddress(reader, address.namespace, address.key, rewind)
    return address


def _relative(state: State, random: Random, conversation: Seq) -> Seq:
    near = [id for id in state.conversations if any(s == conversation for s, _ in state.chain(id))]
    return random.choice(near) if random.random() < 0.85 else _conversation(state, random)


def _at(state: State, random: Random, address: Address) -> At | None:
    choice = random.random()
    rewind = isinstance(address, ConversationAddress) and address.rewind
    if choice < (0.3 if rewind else 0.97):
        return None
    if choice < 0.35:
        return "start"
    visible: list[Entry] = []
    if isinstance(address, ConversationAddress) and address.conversation in state.conversations:
        visible = state.visible_entries(address.conversation)
    if visible and choice < 0.95:
        return random.choice(visible).id
    return _position(state, random)


def _get_value(state: State, random: Random) -> Read:
    address = _address(state, random, "value")
    return Read("get_value", (address, _at(state, random, address)))


def _read_list(state: State, random: Random) -> Read:
    address = _address(state, random, "list")
    at = _at(state, random, address)
    limit = _limit(random, good=at is not None or isinstance(address, ConversationAddress))
    query = ListQuery(at=at, limit=limit, **_cursors(state, random))
    return Read("read_list", (address, query))


def _scan_values(state: State, random: Random) -> Read:
    address = _address(state, random, "value")
    after = (
        random.choice((*ODD_STRINGS, "k", "K", "l", address.key)) if random.random() < 0.4 else None
    )
    with_key = random.random() < 0.02
    scope: Address = msgspec.structs.replace(address, key="k" if with_key else None)
    query = ValueQuery(scope=scope, after=after, limit=_limit(random, good=with_key))
    return Read("scan_values", (query,))


def _rewind_policy(state: State, random: Random) -> Read:
    shape = random.choice(("value", "list"))
    address = _address(state, random, shape)
    if not isinstance(address, ConversationAddress):
        address = ConversationAddress(_conversation(state, random), address.namespace, address.key)
    return Read("rewind_policy", (address, shape))


def _entry_kinds(state: State, random: Random) -> Read:
    return Read("entry_kinds", ())


_WEIGHTED: dict[Callable[[State, Random], Read], int] = {
    _get: 4,
    _scan_entries: 4,
    _newest_head: 2,
    _scan_conversations: 2,
    _scan_tasks: 3,
    _scan_batches: 1,
    _get_value: 4,
    _read_list: 4,
    _scan_values: 3,
    _rewind_policy: 1,
    _entry_kinds: 1,
}
_KINDS_OF_READ = list(_WEIGHTED)
_WEIGHTS = list(_WEIGHTED.values())
