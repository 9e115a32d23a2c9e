"""`pico show`: a session's conversations as a tree, and a page of one transcript."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from pico_store.address import Seq
from pico_store.command import Command
from pico_store.commands.excerpt import entry_line
from pico_store.commands.opening import (
    add_conversation,
    add_session,
    add_store,
    check_shown,
    existing_store,
    number,
    session,
)
from pico_store.commands.output import plural, print_json, print_line
from pico_store.query import ConversationQuery, EntryQuery
from pico_store.records import Conversation, Entry, Page
from pico_store.storage import Storage

ROOT = 1
_CONVERSATIONS = 200
_DEPTH = 20


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    add_session(parser)
    add_conversation(parser)
    parser.add_argument(
        "--before", metavar="ID", type=number, help="the page of entries below this id"
    )
    parser.add_argument(
        "--limit", metavar="N", type=number, default=20, help="entries on the page; 20"
    )


def _run(args: Namespace) -> int:
    with existing_store(args.store) as store, session(store, args.session) as storage:
        check_shown(storage, args.conversation, None)
        page = _page(storage, args.conversation, args.before, args.limit)
        tree = storage.scan_conversations(ConversationQuery(limit=_CONVERSATIONS))
        if args.json:
            entries = page.items[::-1]
            print_json(
                {
                    "session": storage.session_id,
                    "lastSeq": storage.last_seq,
                    "conversations": tree.items,
                    "moreConversations": tree.next is not None,
                    "conversation": args.conversation,
                    "entries": entries,
                    "before": page.next,
                }
            )
        else:
            _print_page(storage, args.conversation, page, tree)
    return 0


def _page(storage: Storage, conversation: Seq, before: Seq | None, limit: int) -> Page[Entry]:
    """Return the newest entries below an id, newest first."""
    below = before if before is not None else Seq(storage.last_seq + 1)
    query = EntryQuery(conversation_id=conversation, before=below, limit=limit)
    return storage.scan_entries(query)


def _print_page(
    storage: Storage, conversation: Seq, page: Page[Entry], tree: Page[Conversation]
) -> None:
    print_line(f"session {storage.session_id}, {plural(storage.last_seq, 'number')}")
    print_line()
    print_line("conversations:")
    for line in tree_lines(tree.items, conversation):
        print_line(line)
    if tree.next is not None:
        print_line(f"  and more; these are the first {len(tree.items):,}")
    print_line()
    print_line(f"transcript of conversation {conversation}:")
    if page.next is not None:
        print_line(f"  older ones: --before {page.next}")
    for entry in reversed(page.items):
        print_line(entry_line(entry))
    if not page.items:
        print_line("  no entries")


def tree_lines(conversations: list[Conversation], chosen: Seq) -> Iterator[str]:
    """Yield the conversations, each fork below and right of what it left.

    Args:
        conversations: Ascending by id.
        chosen: The one to mark.
    """
    known = {conversation.id for conversation in conversations}
    forks: dict[Seq | None, list[Conversation]] = {}
    for conversation in conversations:
        parent = conversation.parent
        above = parent.conversation_id if parent is not None else None
        # A fork of a deleted conversation stands by itself.
        forks.setdefault(above if above in known else None, []).append(conversation)
    waiting = [(found, 0) for found in reversed(forks.get(None, []))]
    while waiting:
        conversation, depth = waiting.pop()
        waiting += [(fork, depth + 1) for fork in reversed(forks.get(conversation.id, []))]
        yield f"{'*' if conversation.id == chosen else ' '} " + _tree_line(conversation, depth)


def _tree_line(conversation: Conversation, depth: int) -> str:
    # Deep chains stay readable: past a depth, the number says what the indent cannot.
    indent = "  " * min(depth, _DEPTH) + ("└ " if depth else "")
    text = f"{indent}{conversation.id}"
    if conversation.parent is None:
        text += "  root" if conversation.id == ROOT else "  begins with nothing"
    if conversation.parent is not None:
        text += f"  fork of {conversation.parent.conversation_id} at {conversation.parent.at}"
    if conversation.owner is not None:
        text += f"  owned by task {conversation.owner}"
    return text


command = Command("show", "show conversations and a page of a transcript", _add_arguments, _run)
