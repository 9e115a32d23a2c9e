"""`pico compare`: what each backend takes on this machine, at each level of durability."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec

from pico_bench.case import Numbers, Setting, run_case
from pico_conformance.workers import unwound_by_sigterm
from pico_store.backends import Backend, backends, find_backend, open_store, split_url
from pico_store.command import UsageError
from pico_store.commands.output import print_json, print_line, table
from pico_store.errors import StoreUrlError
from pico_store.records import JsonObject

TURNS: Final = 300
ENTRIES: Final = 50_000
# Column, number of a case, how it is shown.
_COLUMNS: Final = (
    ("CPU µs/commit", "cpu_us", "{:,.1f}"),
    ("µs/commit", "wall_us", "{:,.1f}"),
    ("disk ÷ payload", "disk_ratio", "{:.2f}"),
    ("open ms", "open_ms", "{:,.1f}"),
    ("open MiB", "mib", "{:,.1f}"),
    ("page ms", "page_ms", "{:.2f}"),
)


def run_compare(args: Namespace) -> int:
    """Measure the named stores, or every installed backend, and print a row for each."""
    if args.file is not None and not args.json:
        raise UsageError("compare: --output needs --json; see --help")
    _check_places(args)
    urls = list(_given(args.url) if args.url else _installed())
    setting = Setting(turns=args.turns or TURNS, entries=args.entries or ENTRIES)
    found: dict[str, Numbers] = {}
    with (
        unwound_by_sigterm(),
        TemporaryDirectory(prefix="pico-compare-", dir=args.dir) as folder,
    ):
        _check_options(urls, folder)
        for number, (name, url) in enumerate(urls):
            if sys.stderr.isatty():
                print(f"\r{name}\x1b[K", end="\r", file=sys.stderr, flush=True)
            kept = str(Path(folder, str(number)))
            there = msgspec.structs.replace(setting, url=url, kept=kept)
            numbers = run_case("pico_bench.compare_case:turns", there)
            if not url.startswith("memory:"):
                run_case("pico_bench.compare_case:make", there)
            found[name] = numbers | run_case("pico_bench.compare_case:large", there)
    if args.json and args.file is None:
        print_json(_as_json(found, setting))
        return 0
    if args.file is not None:
        Path(args.file).write_bytes(msgspec.json.encode(_as_json(found, setting)) + b"\n")
    for line in _lines(found, setting):
        print_line(line)
    return 0


def _check_places(args: Namespace) -> None:
    """Refuse before any work what could not be used after it."""
    if args.dir is not None and not Path(args.dir).is_dir():
        raise UsageError(f"compare: --dir: {args.dir} is no folder; make it first")
    if args.file is not None and not Path(args.file).parent.is_dir():
        raise UsageError(f"compare: --output: {Path(args.file).parent} is no folder")


def _check_options(urls: list[tuple[str, str]], folder: str) -> None:
    """Open every store once, empty: only a backend knows what its options may be."""
    for number, (name, url) in enumerate(urls):
        try:
            open_store(url.replace("{path}", str(Path(folder, f"tried-{number}")))).close()
        except StoreUrlError as error:
            raise UsageError(f"compare: {name}: {error.problem}") from error


def _given(urls: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what was asked for as name and URL; a path in it is not used."""
    for given in urls:
        scheme, _, options = split_url(given)
        yield given, _url(find_backend(scheme), options)


def _installed() -> Iterator[tuple[str, str]]:
    for scheme, backend in backends().items():
        if not isinstance(backend, Backend):
            continue
        if not backend.promises.durability:
            yield f"{scheme}:", _url(backend, {})
        for level in backend.promises.durability:
            yield f"{scheme}: {level}", _url(backend, {"durability": level})


def _url(backend: Backend, options: dict[str, str]) -> str:
    if not backend.promises.durability:
        return f"{backend.scheme}:"
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"{backend.scheme}:{{path}}" + (f"?{query}" if query else "")


def _lines(found: dict[str, Numbers], setting: Setting) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("store", *(column for column, _, _ in _COLUMNS))]
    for name, numbers in found.items():
        cells = [form.format(numbers[key]) if key in numbers else "-" for _, key, form in _COLUMNS]
        rows.append((name, *cells))
    yield from table(rows)
    yield ""
    yield (
        f"{setting.turns:,} turns of 48 commits, closed size ÷ what must survive; "
        f"a session of {setting.entries:,} entries of 1 KB: "
        "opened for writing, private memory that this takes, its newest 50 entries"
    )


def _as_json(found: dict[str, Numbers], setting: Setting) -> JsonObject:
    stores: list[JsonObject] = [{"store": name, **dict(found[name])} for name in found]
    return {"stores": list(stores), "turns": setting.turns, "entries": setting.entries}
