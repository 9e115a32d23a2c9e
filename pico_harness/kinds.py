"""What entries and tasks of a kind look like: the types that reads and writes are checked by."""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct

from pico_harness.errors import KindError, StoredTypeError
from pico_harness.faults import words
from pico_harness.state import Value, check_type
from pico_store.address import Seq
from pico_store.names import check_name
from pico_store.records import Entry, JsonObject, Task, TaskRole
from pico_store.shown import shown

D = TypeVar("D")
S = TypeVar("S", bound="TaskState")
V = TypeVar("V")


def _status_of(name: str) -> str:
    # A class within another comes with the name of that, too.
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition(".")[2]).lower()


class TaskState(
    Struct,
    frozen=True,
    rename="camel",
    omit_defaults=True,
    tag_field="status",
    tag=_status_of,
    forbid_unknown_fields=True,
):
    """One variant of a kind's state, with exactly the fields that exist in that status.

    The status is the class's own name in snake_case, or the ``tag`` that the class gives.
    """


def status_of(state: type[TaskState] | TaskState) -> str:
    """Return the status that a variant stands for."""
    return str(state.__struct_config__.tag)


class Orphaned(Struct, frozen=True):
    """The end that the harness gives to a foreground task whose kind is not registered."""

    fields: JsonObject
    """What its state held before; only what all variants of its kind share may be relied on."""


class Faulted(Struct, frozen=True):
    """The end that the harness gives to a task that broke its contract, where so chosen."""

    fields: JsonObject
    """What its state held before."""
    error: str


Ended: TypeAlias = Orphaned | Faulted
"""Ends that no kind declares."""

DERIVED = {"orphaned": Orphaned, "faulted": Faulted}


class TaskOf(Struct, Generic[V], frozen=True):
    """A task as its kind sees it; a copy, which nothing changes."""

    id: Seq
    conversation_id: Seq
    kind: str
    role: TaskRole
    state: V
    after: tuple[Seq, ...]
    background: bool
    turn: bool
    abort: bool
    owns: tuple[Seq, ...]


# A frozen dataclass with slots cannot be made as `EntryKind[X](...)` in Python 3.11; a struct can.
class EntryKind(Struct, Generic[D], frozen=True):
    """A name for entries and the type of what their ``data`` holds."""

    name: str
    # By its full name, because the field hides the short one from whoever asks for the types.
    type: builtins.type[D] | None = None
    """``None``: any strict JSON, or nothing."""

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        check_type(self.type)

    def matches(self, entry: Entry) -> bool:
        """Tell whether an entry is of this kind."""
        return entry.kind == self.name

    def data(self, entry: Entry) -> D:
        """Return what an entry of this kind carries.

        Raises:
            StoredTypeError: The entry is of another kind, or holds something else.
        """
        if entry.kind != self.name:
            problem = f"entry {entry.id} is of kind {entry.kind!r}; asked as {self.name!r}"
            raise StoredTypeError("KIND-2", problem)
        if self.type is None:
            return None if entry.data is UNSET else entry.data  # type: ignore[return-value]
        try:
            return msgspec.convert(None if entry.data is UNSET else entry.data, self.type)
        except msgspec.ValidationError as error:
            problem = f"entry {entry.id} ({self.name}): {error}"
            raise StoredTypeError("KIND-2", problem) from error


class TaskDeclaration:
    """What a task kind says of itself: its name and one variant of state for each status.

    Subclasses state ``name`` and ``states``; the first variant is the one that tasks begin in.
    """

    name: ClassVar[str]
    states: ClassVar[Mapping[type[TaskState], TaskRole]]
    """Every variant and its role, in any order but for the first, whose role is ``start``."""
    turn: ClassVar[bool] = False
    """Whether its tasks are part of their conversation's turn."""
    config: ClassVar[Mapping[str, Value[object]]] = {}
    """The values that its behaviour depends on."""

    @property
    def initial(self) -> type[TaskState]:
        """The variant that tasks begin in."""
        return next(iter(self.states))

    def matches(self, task: Task) -> bool:
        """Tell whether a task is of this kind."""
        return task.kind == self.name

    def role(self, state: TaskState) -> TaskRole:
        """Return the role of a state.

        Raises:
            KindError: It is no variant of this kind.
        """
        role = self.states.get(type(state))
        if role is None:
            known = ", ".join(variant.__name__ for variant in self.states)
            problem = f"{type(state).__name__} is no state of kind {self.name!r}"
            raise KindError("KIND-1", f"{problem}; allowed: {known}")
        return role

    def read_problem(self, task: Task) -> str | None:
        """Return why a live task of this name is none that this kind can run; ``None``: it can."""
        for variant, role in self.states.items():
            if status_of(variant) == task.status and role != task.role:
                return f"{self._at(task)} is stored in role {task.role}; the kind declares {role}"
        return None

    def _at(self, task: Task) -> str:
        return f"task {task.id} ({self.name}, {task.status})"


class TaskType(TaskDeclaration, Generic[S]):
    """A declaration as the witness of its states' type, for reads and writes that are checked."""

    def read(self, task: Task) -> TaskOf[S | Ended]:
        """Return a stored task of this kind with its typed state.

        Raises:
            StoredTypeError: Its state is none that the kind declares.
        """
        return typed_task(task, self._state(task))

    def read_problem(self, task: Task) -> str | None:
        try:
            self.read(task)
        except StoredTypeError as error:
            return error.problem
        except Exception as error:  # noqa: BLE001 - a state may check its fields as it likes
            return f"{self._at(task)} raises {type(error).__name__}{words(error)}"
        return super().read_problem(task)

    def _state(self, task: Task) -> S | Ended:
        ended = ended_state(task)
        if ended is not None:
            return ended
        for variant in self.states:
            if variant.__struct_config__.tag == task.status:
                try:
                    return msgspec.convert(task.state, variant)  # type: ignore[return-value]
                except msgspec.ValidationError as error:
                    problem = f"{self._at(task)}: {error}"
                    raise StoredTypeError("KIND-2", problem) from error
        known = ", ".join(status_of(variant) for variant in self.states)
        problem = f"task {task.id} ({self.name}) has status {task.status!r}"
        raise StoredTypeError("KIND-2", f"{problem}; the kind declares: {known}")


def check_task_kind(kind: object) -> None:
    """Return a kind that tasks may be made of or read with; refuse what is none.

    Raises:
        KindError: It is no instance of a kind, or has no name.
    """
    if isinstance(kind, TaskType) and type(getattr(kind, "name", None)) is str:
        return
    what = f"the class {kind.__name__}" if isinstance(kind, type) else shown(kind)
    problem = f"kind: {what} where a task kind is expected"
    raise KindError("KIND-1", f"{problem}; allowed: an instance of TaskKind that has a name")


def typed_task(task: Task, state: V) -> TaskOf[V]:
    """Return a stored task with the given state in place of the stored one."""
    return TaskOf(
        task.id,
        task.conversation_id,
        task.kind,
        task.role,
        state,
        task.after,
        task.background,
        task.turn,
        task.abort,
        task.owns,
    )


def ended_state(task: Task) -> Ended | None:
    """Return the end that the harness gave to a task; ``None``: it gave none."""
    if task.role != "terminal" or task.status not in DERIVED:
        return None
    fields = {name: value for name, value in task.state.items() if name != "status"}
    if task.status == "orphaned":
        return Orphaned(fields)
    return Faulted(fields, str(fields.pop("error", "")))


def check_declaration(kind: TaskDeclaration) -> None:
    """Refuse a kind that is not well formed.

    Raises:
        KindError: No name, no or wrong states, two variants of one status, a first one that is not
            ``start``, or a status that only the harness gives.
    """
    if isinstance(kind, type):
        problem = f"the class {kind.__name__} where a kind is expected"
        raise KindError("TASKS-1", f"{problem}; allowed: an instance, {kind.__name__}()")
    if not isinstance(kind, TaskDeclaration):
        problem = f"{shown(kind)} where a kind is expected"
        raise KindError("TASKS-1", f"{problem}; allowed: an instance of TaskKind")
    where = type(kind).__name__
    name = getattr(kind, "name", None)
    if type(name) is not str or not name:
        raise KindError("TASKS-1", f"{where} without a name; allowed: name = 'words'")
    states = getattr(kind, "states", None)
    if not isinstance(states, Mapping) or not states:
        problem = f"kind {name!r} declares no states; allowed: a role for each variant"
        raise KindError("TASKS-1", problem)
    met: dict[str, type[TaskState]] = {}
    for variant, role in states.items():
        if not (isinstance(variant, type) and issubclass(variant, TaskState)):
            problem = f"kind {name!r}: {shown(variant)} is no TaskState"
            raise KindError("TASKS-1", f"{problem}; allowed: its subclasses")
        status = status_of(variant)
        config = variant.__struct_config__
        if config.tag_field != "status" or type(config.tag) is not str:
            problem = f"kind {name!r}: {variant.__name__} is told apart by "
            problem += f"{config.tag_field} = {config.tag!r:.40}"
            raise KindError("TASKS-1", f"{problem}; allowed: a text under 'status'")
        if role not in ("start", "inflight", "terminal"):
            problem = f"kind {name!r}: status {status!r} has role {shown(role)}"
            raise KindError("TASKS-1", f"{problem}; allowed: start, inflight, terminal")
        if status in DERIVED:
            problem = f"kind {name!r} declares status {status!r}"
            raise KindError("TASKS-1", f"{problem}, which the harness alone gives; name it anew")
        if status in met:
            problem = f"kind {name!r}: {met[status].__name__} and {variant.__name__} are both"
            raise KindError("TASKS-1", f"{problem} {status!r}; allowed: one variant a status")
        _check_readable(name, variant)
        met[status] = variant
    roles = list(states.values())
    if roles[0] != "start":
        problem = f"kind {name!r} begins in role {roles[0]!r}; allowed first: start"
        raise KindError("TASKS-1", problem)
    if "terminal" not in roles:
        raise KindError("TASKS-1", f"kind {name!r} has no terminal status; tasks could not end")
    _check_dependence(name, kind.turn, kind.config)


def _check_readable(name: str, variant: type[TaskState]) -> None:
    """Refuse a variant with fields of types that nothing stored could be read as."""
    try:
        msgspec.json.Decoder(variant)
    except NameError:
        # A class within it is declared later.
        return
    except Exception as error:
        problem = f"kind {name!r}: {variant.__name__} cannot be read from JSON: {error}"
        raise KindError("TASKS-1", f"{problem}; allowed: fields of types that can") from error


def _check_dependence(name: str, turn: object, config: object) -> None:
    """Refuse a turn and a config that are of other types."""
    if type(turn) is not bool:
        problem = f"kind {name!r}: turn is {shown(turn)}"
        raise KindError("TASKS-1", f"{problem}; allowed: True or False")
    if not isinstance(config, Mapping):
        problem = f"kind {name!r}: config is {shown(config)}"
        raise KindError("TASKS-1", f"{problem}; allowed: a mapping of texts to values")
    for key, value in config.items():
        if type(key) is not str or not isinstance(value, Value) or value.scope == "scratch":
            problem = f"kind {name!r}: config {shown(key)}: {shown(value)}"
            allowed = "a text for each value of the session or of conversations"
            raise KindError("TASKS-1", f"{problem}; allowed: {allowed}")
