"""`pico context`: what a model would see of a conversation."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pico_store.command import Command
from pico_store.commands.excerpt import messages_excerpt
from pico_store.commands.opening import (
    add_conversation,
    add_session,
    add_store,
    check_shown,
    existing_store,
    position,
    session,
)
from pico_store.commands.output import plural, print_json, print_line, shorten
from pico_store.context import Context, derive_context
from pico_store.records import At


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    add_session(parser)
    add_conversation(parser)
    parser.add_argument(
        "--at",
        metavar="ENTRY",
        type=position,
        help="an entry that the conversation shows, or start; the newest if not given",
    )


def _run(args: Namespace) -> int:
    with existing_store(args.store) as store, session(store, args.session) as storage:
        check_shown(storage, args.conversation, args.at)
        context = derive_context(storage, args.conversation, args.at)
        if args.json:
            items = [
                {
                    "entry": item.entry.id,
                    "kind": item.entry.kind,
                    "replaced": item.replaced,
                    "messages": item.messages,
                }
                for item in context.items
            ]
            print_json(
                {
                    "session": storage.session_id,
                    "conversation": context.conversation,
                    "at": args.at,
                    "head": context.head,
                    "items": items,
                    "omitted": context.omitted,
                }
            )
        else:
            _print(context, args.at)
    return 0


def _print(context: Context, at: At | None) -> None:
    place = "now" if at is None else f"at {at}"
    begins = "the start" if context.head is None else f"head {context.head}"
    print_line(
        f"context of conversation {context.conversation} {place}: "
        f"{plural(len(context.items), 'entry')}, {plural(len(context.messages), 'message')}, "
        f"from {begins}"
    )
    for item in context.items:
        mark = "[replaced] " if item.replaced else ""
        text = shorten(mark + messages_excerpt(item.messages), 100)
        print_line(f"{item.entry.id:>8}  {item.entry.kind:<12}  {text}".rstrip())
    if context.omitted:
        print_line(f"omitted: {', '.join(map(str, context.omitted))}")


command = Command("context", "show what a model would see", _add_arguments, _run)
