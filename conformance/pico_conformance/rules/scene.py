"""A small session in which every kind of thing occurs, for rules about the whole."""

from __future__ import annotations

from typing import NamedTuple

from pico_conformance.rule import Lab
from pico_store.address import ConversationAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    DeleteConversation,
    ListAppend,
    PatchTask,
    ValueSet,
)
from pico_store.records import Conversation, Entry, ForkPoint, Omit, Replace, Task


class Scene(NamedTuple):
    """The ids of what `build_scene` made."""

    root: Seq
    user: Seq
    """The first entry of the root."""
    note: Seq
    """An entry with everything: key, data, model, head, edits, the task that wrote it."""
    late: Seq
    """The root's newest entry; it is beyond every cut."""
    live: Seq
    """A live task of the root, with scratch and an abort mark."""
    done: Seq
    """A settled task of the root, which owns ``child``."""
    child: Seq
    fork: Seq
    """Forked from the root at ``note``."""
    fork_entry: Seq
    deleted: Seq
    """A deleted fork of the root at ``user``."""
    deleted_entry: Seq
    """Its entry that ``heir`` inherits."""
    lost_entry: Seq
    """Its entry that nobody inherits."""
    heir: Seq
    """A live fork of ``deleted`` at ``deleted_entry``."""
    elements: tuple[Seq, Seq]
    """Of the root's rewindable list: one before ``note``, one after; the first is removed."""


def sticky(conversation: Seq, key: str | None = None, namespace: str = "s") -> ConversationAddress:
    """Return a sticky address of a conversation."""
    return ConversationAddress(conversation, namespace, key)


def rewindable(
    conversation: Seq, key: str | None = None, namespace: str = "v"
) -> ConversationAddress:
    """Return a rewindable address of a conversation."""
    return ConversationAddress(conversation, namespace, key, rewind=True)


def moves(conversation: Seq) -> ConversationAddress:
    """Return the address of a conversation's rewindable list."""
    return ConversationAddress(conversation, "l", rewind=True)


def build_scene(lab: Lab) -> Scene:
    """Fill the lab's empty session and return what is where."""
    root = lab.root()
    user = lab.entry(root, kind="user", data={"text": "hello"})
    lab.set(rewindable(root), {"plan": 1})
    lab.set(rewindable(root, "k"), "inherited")
    first = lab.append(moves(root), "e2")
    lab.set(sticky(root, "s"), [1, 2])
    lab.set(SessionAddress("s", "name"), "the session")
    log = lab.append(SessionAddress("l"), "first")
    lab.append(SessionAddress("l"), "second")
    lab.remove(SessionAddress("l"), log)
    done = lab.task(root, kind="tool", status="planned")
    child = lab.conversation(owner=done)
    lab.entry(child, kind="child", head="self")
    lab.scratch(done, ValueSet(ScratchAddress(done, "p"), "retired"))
    note = _note(lab, root, user, done)
    lab.settle(done)
    lab.set(rewindable(root), {"plan": 2})
    lab.unset(rewindable(root, "k"))
    second = lab.append(moves(root), "e4")
    lab.remove(moves(root), first)
    late = lab.entry(root, kind="late", key="a")
    fork = lab.fork(root, note)
    lab.set(rewindable(fork, "own"), None)
    lab.clear(moves(fork))
    fork_entry = lab.entry(fork, kind="note", key="a")
    deleted, deleted_entry, lost, heir = _bereave(lab, root, user)
    live = _live_task(lab, root, done)
    return Scene(
        root, user, note, late, live, done, child, fork, fork_entry,
        deleted, deleted_entry, lost, heir, (first, second),
    )  # fmt: skip


def _note(lab: Lab, root: Seq, user: Seq, task: Seq) -> Seq:
    note = Entry(
        id=lab.next,
        conversation_id=root,
        kind="note",
        key="",
        by_task_id=task,
        data=None,
        model=[{"role": "user", "content": "seen"}],
        head=user,
        edits=(Omit(user), Replace(user, [])),
    )
    return lab.commit(note).first


def _bereave(lab: Lab, root: Seq, user: Seq) -> tuple[Seq, Seq, Seq, Seq]:
    """Fork, fork the fork, and delete what lies between."""
    deleted = lab.fork(root, user)
    lab.set(rewindable(deleted), "of the deleted")
    lab.set(rewindable(deleted, "k2"), "of the deleted")
    lab.append(moves(deleted), "of the deleted")
    kept = lab.entry(deleted, kind="kept")
    heir = lab.fork(deleted, kept)
    lab.set(rewindable(deleted), "too late for the heir")
    lost = lab.entry(deleted, kind="lost")
    lab.commit(DeleteConversation(deleted))
    return deleted, kept, lost, heir


def _live_task(lab: Lab, root: Seq, after: Seq) -> Seq:
    live = lab.commit(
        Task(
            id=lab.next,
            conversation_id=root,
            kind="generation",
            status="pending",
            role="start",
            state={"status": "pending", "input": 1},
            after=(after,),
            background=True,
            turn=True,
        )
    ).first
    lab.commit(PatchTask(live, "streaming", "inflight", {"status": "streaming"}, abort=True))
    lab.scratch(
        live,
        ValueSet(ScratchAddress(live, "p", "k"), 1),
        ListAppend(ScratchAddress(live, "frames"), "He"),
    )
    lab.scratch(live, ListAppend(ScratchAddress(live, "frames"), "llo"))
    return live


def new_conversation(lab: Lab, parent: tuple[Seq, Seq] | None = None) -> Conversation:
    """Return the write that would create a conversation now."""
    point = None if parent is None else ForkPoint(parent[0], parent[1])
    return Conversation(id=lab.next, parent=point)
