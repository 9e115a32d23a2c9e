"""`pico fork`: a new conversation that shares the history of another up to an entry."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pico_store.address import Seq
from pico_store.batch import MainBatch
from pico_store.command import Command
from pico_store.commands.opening import (
    add_conversation,
    add_session,
    add_store,
    check_shown,
    existing_store,
    position,
    session,
)
from pico_store.commands.output import print_json
from pico_store.records import At, Conversation, ForkPoint
from pico_store.storage import Storage


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)
    add_session(parser)
    add_conversation(parser)
    parser.add_argument(
        "--at",
        metavar="ENTRY",
        type=position,
        required=True,
        help="the last entry that the fork shares, or start to share nothing",
    )


def _run(args: Namespace) -> int:
    with (
        existing_store(args.store) as store,
        session(store, args.session, read_only=False) as storage,
    ):
        fork = fork_conversation(storage, args.conversation, args.at)
        if args.json:
            print_json({"session": storage.session_id, "conversation": fork})
        else:
            print(fork)
    return 0


def fork_conversation(storage: Storage, conversation: Seq, at: At) -> Seq:
    """Commit a fork of a conversation and return its id."""
    check_shown(storage, conversation, at)
    parent = None if at == "start" else ForkPoint(conversation, at)
    fork = Conversation(id=Seq(storage.last_seq + 1), parent=parent)
    storage.commit(MainBatch((fork,)), expected_first=fork.id)
    return fork.id


command = Command("fork", "fork a conversation at an entry", _add_arguments, _run)
