"""Typed names of state: what a session, a conversation or a task's scratch keeps under a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, Self, TypeAlias, TypeVar, get_args, overload

import msgspec

from pico_harness.arguments import check_choice, check_flag, wrong
from pico_harness.errors import BuilderError, StoredTypeError
from pico_harness.owned import own
from pico_store.address import (
    Address,
    ConversationAddress,
    ScratchAddress,
    Seq,
    SessionAddress,
)
from pico_store.names import check_name
from pico_store.records import JsonValue

Scope: TypeAlias = Literal["session", "conversation", "scratch"]

T = TypeVar("T")
# Covariant, so that a list of names of different types has a type; what may be written through a
# name is held by the accessor that it is bound to.
T_co = TypeVar("T_co", covariant=True)


def plain(value: object, type: type[object], what: str) -> JsonValue:
    """Return a typed value as JSON, from which the same type can be read again.

    Args:
        value: Of any type that has a form in JSON.
        type: What a read will ask for. Records do not check their fields when they are made, so
            what could be written and never read is found here.
        what: What it is, for messages.

    Raises:
        StoredTypeError: A part of it has no form in JSON, or is of another type.
    """
    try:
        found = _json(msgspec.to_builtins(value))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StoredTypeError("STATE-2", f"{what}: {error}; allowed: what JSON can hold") from error
    try:
        msgspec.convert(found, type)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:
        raise StoredTypeError("STATE-2", f"{what}: {error}") from error
    return found


_CONTAINERS = frozenset((dict, list, tuple))


def _json(value: JsonValue | tuple[JsonValue, ...]) -> JsonValue:
    """Return what msgspec made of a record, with lists for tuples; changes it in place."""
    if type(value) is tuple:
        value = list(value)
    if type(value) is list:
        for index, item in enumerate(value):
            if type(item) in _CONTAINERS:
                value[index] = _json(item)
    elif type(value) is dict:
        for name, item in value.items():
            if type(item) in _CONTAINERS:
                value[name] = _json(item)
    return value  # type: ignore[return-value]


def check_type(type: object) -> None:
    """Refuse what stands for no type of stored values; what is declared later passes.

    Raises:
        ArgumentError: Nothing that is stored could be read as that.
    """
    if type is None:
        return
    try:
        msgspec.json.Decoder(type)
    except NameError:
        # A class within it refers to one that its module has still to define.
        return
    except Exception as error:
        # A TypeError, or what the value itself raises when it is to be named in one.
        raise wrong(type, "type", "a type that JSON can be read as, or None") from error


# Without slots, for `Kind[Type](...)` to work: Python 3.11 cannot set the alias on a frozen class
# that has them.
@dataclass(frozen=True)
class _Name(Generic[T_co]):
    """A name of state and the type of what it holds; the owner is bound where it is used."""

    scope: Scope
    namespace: str
    type: type[T_co] | None
    """What is kept; ``None``: any strict JSON, kept as it is."""
    rewind: bool = False
    """Whether forks see its history; only in a conversation."""
    key: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.scope, get_args(Scope), "scope")
        check_name(self.namespace, "namespace")
        check_flag(self.rewind, "rewind")
        if self.key is not None:
            check_name(self.key, "key", empty=True)
        check_type(self.type)

    def _at_key(self, key: str) -> Self:
        # A copy, not another one made: all but the key was looked at.
        check_name(key, "key", empty=True)
        found = object.__new__(self.__class__)
        found.__dict__.update(self.__dict__, key=key)
        return found

    def address(self, owner: Seq | None) -> Address:
        """Return the stored address.

        Args:
            owner: The conversation or the task; ``None`` for session state.
        """
        if self.scope == "session":
            return SessionAddress(self.namespace, self.key)
        if owner is None:
            problem = f"{self.scope} state {self.namespace!r} without a {self.scope}"
            raise BuilderError("STATE-1", f"{problem}; allowed: through a handle that binds one")
        if self.scope == "conversation":
            return ConversationAddress(owner, self.namespace, self.key, self.rewind)
        return ScratchAddress(owner, self.namespace, self.key)

    def encode(self, value: object) -> JsonValue:
        """Return a value as it is stored."""
        if self.type is None:
            return own(value)  # type: ignore[return-value]
        return plain(value, self.type, f"{self.scope} state {self.namespace!r}")

    def decode(self, stored: JsonValue) -> T_co:
        """Return a stored value as its type.

        Raises:
            StoredTypeError: It is not of that type.
        """
        if self.type is None:
            return stored  # type: ignore[return-value]
        try:
            return msgspec.convert(stored, self.type)
        except msgspec.ValidationError as error:
            problem = f"{self.scope} state {self.namespace!r}: {error}"
            raise StoredTypeError("STATE-2", problem) from error


# Without slots, for `Kind[Type](...)` to work: Python 3.11 cannot set the alias on a frozen class
# that has them.
@dataclass(frozen=True)
class Value(_Name[T_co]):
    """The name of one current value."""

    def at_key(self, key: str) -> Value[T_co]:
        """Return the name of one value of many under the same namespace."""
        return self._at_key(key)


# Without slots, for `Kind[Type](...)` to work: Python 3.11 cannot set the alias on a frozen class
# that has them.
@dataclass(frozen=True)
class ListOf(_Name[T_co]):
    """The name of a list of elements, each with an id."""

    def at_key(self, key: str) -> ListOf[T_co]:
        """Return the name of one list of many under the same namespace."""
        return self._at_key(key)


@overload
def session_value(namespace: str) -> Value[JsonValue]: ...
@overload
def session_value(namespace: str, type: type[T]) -> Value[T]: ...
def session_value(namespace: str, type: type[T] | None = None) -> Value[T] | Value[JsonValue]:
    """Name a value of the whole session, current only."""
    return Value("session", namespace, type)


@overload
def session_list(namespace: str) -> ListOf[JsonValue]: ...
@overload
def session_list(namespace: str, type: type[T]) -> ListOf[T]: ...
def session_list(namespace: str, type: type[T] | None = None) -> ListOf[T] | ListOf[JsonValue]:
    """Name a list of the whole session, current only."""
    return ListOf("session", namespace, type)


@overload
def conversation_value(namespace: str, *, rewind: bool) -> Value[JsonValue]: ...
@overload
def conversation_value(namespace: str, type: type[T], *, rewind: bool) -> Value[T]: ...
def conversation_value(
    namespace: str, type: type[T] | None = None, *, rewind: bool
) -> Value[T] | Value[JsonValue]:
    """Name a value of each conversation.

    Args:
        namespace: 1 … 1,024 bytes of UTF-8.
        type: What it holds; strict JSON as it is if not given.
        rewind: True: forks see it as of their cut. False: no fork sees it.
    """
    return Value("conversation", namespace, type, rewind)


@overload
def conversation_list(namespace: str, *, rewind: bool) -> ListOf[JsonValue]: ...
@overload
def conversation_list(namespace: str, type: type[T], *, rewind: bool) -> ListOf[T]: ...
def conversation_list(
    namespace: str, type: type[T] | None = None, *, rewind: bool
) -> ListOf[T] | ListOf[JsonValue]:
    """Name a list of each conversation; see `conversation_value`."""
    return ListOf("conversation", namespace, type, rewind)


@overload
def scratch_value(namespace: str) -> Value[JsonValue]: ...
@overload
def scratch_value(namespace: str, type: type[T]) -> Value[T]: ...
def scratch_value(namespace: str, type: type[T] | None = None) -> Value[T] | Value[JsonValue]:
    """Name a value of each task's scratch, gone when the task settles."""
    return Value("scratch", namespace, type)


@overload
def scratch_list(namespace: str) -> ListOf[JsonValue]: ...
@overload
def scratch_list(namespace: str, type: type[T]) -> ListOf[T]: ...
def scratch_list(namespace: str, type: type[T] | None = None) -> ListOf[T] | ListOf[JsonValue]:
    """Name a list of each task's scratch, gone when the task settles."""
    return ListOf("scratch", namespace, type)
