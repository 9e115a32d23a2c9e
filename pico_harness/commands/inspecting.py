"""What `pico inspect` does when it is run."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence

from pico_harness.commands.naming import load_kinds
from pico_harness.inspection import LiveTasks, inspect_storage
from pico_store.address import Seq
from pico_store.commands.opening import existing_store, only_session, session
from pico_store.commands.output import plural, print_json, print_line
from pico_store.owning import owner_json, record_text
from pico_store.records import JsonObject, Task
from pico_store.storage import SessionInfo, Store

_LISTED = 20
_NONE: Mapping[Seq, str] = {}
_LISTS = {
    "start": "start: wait for their turn, or for others",
    "inflight": "in flight: begun, and recovered by the next who drives if their owner ended",
    "orphaned": "orphaned: their kind is not there; driving would settle them so",
    "parked": "parked: left alone until a kind can run them, or until they are resumed",
}


def run(args: Namespace) -> int:
    """Print what is live in a session."""
    kinds = None if args.kinds is None else load_kinds(args.kinds)
    with existing_store(args.store) as store:
        name = only_session(store) if args.session is None else args.session
        with session(store, name) as storage:
            last_seq = storage.last_seq
            found = inspect_storage(storage, kinds)
        info = _info(store, name)
        if args.json:
            print_json({"session": name, "lastSeq": last_seq, **_as_json(info, found)})
        else:
            _print(store.url, info, last_seq, found)
            if kinds is None and found.count:
                print_line()
                print_line("orphaned and parked ones are told apart where --kinds names the kinds")
    return 0


def _info(store: Store, name: str) -> SessionInfo:
    return next(info for info in store.sessions() if info.id == name)


def _print(url: str, info: SessionInfo, last_seq: int, found: LiveTasks) -> None:
    print_line(f"session {info.id} in {url}: {plural(last_seq, 'number')}")
    print_line(record_text(info.owner))
    print_line(f"live tasks: {found.count:,}")
    for name, tasks in _lists(found).items():
        if tasks:
            print_line()
            print_line(_LISTS[name])
            for line in task_lines(tasks, found.unreadable):
                print_line(line)


def task_lines(tasks: Sequence[Task], unreadable: Mapping[Seq, str] = _NONE) -> list[str]:
    """Return a line for each of the first tasks, and one for all others.

    Args:
        tasks: What to list.
        unreadable: Why some cannot be read; said in a line below each.
    """
    lines: list[str] = []
    for task in tasks[:_LISTED]:
        lines.append(_task_line(task))
        if task.id in unreadable:
            lines.append(f"          cannot be read: {' '.join(unreadable[task.id].split())}")
    if len(tasks) > _LISTED:
        lines.append(f"  and {len(tasks) - _LISTED:,} more")
    return lines


def _task_line(task: Task) -> str:
    text = f"{task.id:>8}  {task.kind:<12}  {task.status:<10}  conversation {task.conversation_id}"
    if task.after:
        text += f"  after {', '.join(map(str, task.after[:5]))}"
        text += " ..." if len(task.after) > 5 else ""
    if task.owns:
        text += f"  owns {', '.join(map(str, task.owns[:5]))}"
        text += " ..." if len(task.owns) > 5 else ""
    marks = [name for name in ("background", "turn", "abort") if getattr(task, name)]
    return f"{text}  [{', '.join(marks)}]" if marks else text


def _as_json(info: SessionInfo, found: LiveTasks) -> JsonObject:
    lists = {name: list(map(_task_json, tasks)) for name, tasks in _lists(found).items()}
    unreadable = {str(id): problem for id, problem in found.unreadable.items()}
    return {"owner": owner_json(info.owner), **lists, "unreadable": unreadable}  # type: ignore[dict-item]


def _task_json(task: Task) -> JsonObject:
    return {
        "id": task.id,
        "conversation": task.conversation_id,
        "kind": task.kind,
        "status": task.status,
        "role": task.role,
        "after": list(task.after),
        "owns": list(task.owns),
        "background": task.background,
        "turn": task.turn,
        "abort": task.abort,
    }


def _lists(found: LiveTasks) -> dict[str, tuple[Task, ...]]:
    return {
        "start": found.start,
        "inflight": found.inflight,
        "orphaned": found.orphaned,
        "parked": found.parked,
    }
