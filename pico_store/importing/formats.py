"""The transcript formats that can be read, told apart by what a file holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from pico_store.importing import claude_code, pi_session
from pico_store.importing.errors import TranscriptError
from pico_store.importing.lines import Line, read_lines
from pico_store.importing.transcript import Transcript
from pico_store.records import JsonObject


@dataclass(frozen=True, slots=True)
class TranscriptFormat:
    """One foreign format."""

    name: str
    recognises: Callable[[JsonObject], bool]
    """Whether a record can only come from this format."""
    read: Callable[[list[Line]], Transcript]


FORMATS = (
    TranscriptFormat(pi_session.NAME, pi_session.recognises, pi_session.read),
    TranscriptFormat(claude_code.NAME, claude_code.recognises, claude_code.read),
)


def read_transcript(
    stream: BinaryIO, watch: Callable[[Iterator[Line]], Iterable[Line]] = iter
) -> Transcript:
    """Return the transcript that a file holds, in whichever known format.

    Args:
        stream: The file.
        watch: Passes the lines on and may count them.

    Raises:
        TranscriptError: The file is empty, malformed, of no known format, or without messages.
    """
    lines = list(watch(read_lines(stream)))
    if not lines:
        raise TranscriptError("the file is empty")
    transcript = _format(lines).read(lines)
    if not transcript.nodes:
        problem = f"the file holds no messages ({len(lines):,} records of format "
        raise TranscriptError(f"{problem}{transcript.format})")
    transcript.lines = lines[-1].number
    transcript.replaced = sum(line.replaced for line in lines)
    return transcript


def _format(lines: list[Line]) -> TranscriptFormat:
    for line in lines:
        for known in FORMATS:
            if known.recognises(line.record):
                return known
    names = ", ".join(known.name for known in FORMATS)
    raise TranscriptError(f"not a transcript of a known format; known: {names}")
