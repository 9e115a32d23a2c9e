"""The error of reading a foreign transcript."""

from __future__ import annotations

from pico_store.errors import PicoError


class TranscriptError(PicoError, ValueError):
    """The file cannot be imported and nothing was written: mend what the message names.

    Attributes:
        line: The line at fault, counted from 1; ``None`` when it is the file as a whole.
    """

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(problem if line is None else f"line {line}: {problem}")
        self.problem = problem
        self.line = line

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.problem, self.line)
