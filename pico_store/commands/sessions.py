"""`pico sessions`: what a store holds."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from pico_store.command import Command
from pico_store.commands.opening import add_store, existing_store
from pico_store.commands.output import print_json, print_line, table
from pico_store.owning import owner_json, owner_text
from pico_store.records import JsonObject
from pico_store.storage import SessionInfo


def _add_arguments(parser: ArgumentParser) -> None:
    add_store(parser)


def _run(args: Namespace) -> int:
    with existing_store(args.store) as store:
        infos = store.sessions()
        if args.json:
            print_json({"store": store.url, "sessions": [_as_json(info) for info in infos]})
        elif not infos:
            print_line(f"{store.url} holds no session")
        else:
            rows: list[tuple[str, ...]] = [("SESSION", "NUMBERS", "OPENED", "OWNER")]
            rows += [_row(info) for info in infos]
            for line in table(rows):
                print(line)
    return 0


def _row(info: SessionInfo) -> tuple[str, ...]:
    owner = "-" if info.owner is None else owner_text(info.owner)
    if info.owner is not None and info.owner.ended:
        owner += ", ended"
    return info.id, f"{info.last_seq:,}", f"{info.epoch:,}", owner


def _as_json(info: SessionInfo) -> JsonObject:
    owner = owner_json(info.owner)
    return {"id": info.id, "lastSeq": info.last_seq, "epoch": info.epoch, "owner": owner}


command = Command("sessions", "list the sessions of a store", _add_arguments, _run)
