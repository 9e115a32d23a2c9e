"""Taking an object of a foreign record apart: typed fields, and what nobody took."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from pico_store.importing.errors import TranscriptError
from pico_store.importing.lines import name_of
from pico_store.records import JsonObject, JsonValue


class Fields:
    """An object whose fields are taken one by one.

    A field that is absent or null reads as ``None`` and stays where it is; one of another type
    than asked for is an error that names the line and the field.
    """

    def __init__(self, found: JsonObject, line: int, path: str = "") -> None:
        self._left = dict(found)
        self.line = line
        self.path = path
        """What stands before the name of a field in messages."""

    def text(self, name: str) -> str | None:
        """Take a text."""
        value = self._left.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise self.wrong(name, value, "a text")
        del self._left[name]
        return value

    def need_text(self, name: str) -> str:
        """Take a text that must be there."""
        value = self.text(name)
        if value is None:
            raise TranscriptError(f"no {self.path}{name}; needed: a text", self.line)
        return value

    def flag(self, name: str) -> bool:
        """Take true or false; absent is false."""
        value = self._left.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        del self._left[name]
        return value

    def number(self, name: str) -> int | float | None:
        """Take a number."""
        value = self._left.get(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(name, value, "a number")
        del self._left[name]
        return value

    def part(self, name: str) -> Fields | None:
        """Take an object; put back with `keep` what of it nobody took."""
        value = self._left.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        del self._left[name]
        return Fields(value, self.line, f"{self.path}{name}.")

    def need_part(self, name: str) -> Fields:
        """Take an object that must be there."""
        part = self.part(name)
        if part is None:
            raise TranscriptError(f"no {self.path}{name}; needed: an object", self.line)
        return part

    def value(self, name: str) -> JsonValue:
        """Take whatever is there."""
        return self._left.pop(name, None)

    def keep(self, name: str, left: JsonObject) -> None:
        """Put back what nobody took of a part."""
        if left:
            self._left[name] = left

    @property
    def left(self) -> JsonObject:
        """What nobody took."""
        return self._left

    def wrong(self, name: str, value: JsonValue, needed: str) -> TranscriptError:
        """Return the error for a field of another type."""
        return TranscriptError(
            f"{self.path}{name} is {name_of(value)}; needed: {needed}", self.line
        )


BlockReader = Callable[[str, Fields], JsonObject | None]
"""Maps one content block of a type; ``None`` if the vocabulary has no such block."""


def read_blocks(fields: Fields, name: str, read: BlockReader) -> list[JsonObject]:
    """Take a list of content blocks and return what they map to.

    A plain text reads as one text block. Blocks without a counterpart, and the fields of others
    that have none, are put back under their index.
    """
    content = fields.value(name)
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if content is None:
        return []
    if not isinstance(content, list):
        raise fields.wrong(name, content, "a text or a list of blocks")
    blocks: list[JsonObject] = []
    left: JsonObject = {}
    for index, item in enumerate(content):
        if not isinstance(item, dict):
            raise fields.wrong(f"{name}[{index}]", item, "an object")
        block = Fields(item, fields.line, f"{fields.path}{name}[{index}].")
        kind = block.need_text("type")
        mapped = read(kind, block)
        if mapped is None:
            left[str(index)] = item
            continue
        blocks.append(mapped)
        if block.left:
            left[str(index)] = block.left
    fields.keep(name, left)
    return blocks


def set_present(target: JsonObject, values: Iterable[tuple[str, JsonValue]]) -> JsonObject:
    """Set the members whose values are there, and return the object."""
    for name, value in values:
        if value is not None:
            target[name] = value
    return target


def unix_ms(text: str | None) -> int | None:
    """Return an ISO 8601 time as Unix milliseconds; one without a zone is UTC."""
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return round(time.timestamp() * 1000)
