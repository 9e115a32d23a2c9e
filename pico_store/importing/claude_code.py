"""Claude Code transcripts: records that name their parents, with branches, sidechains and notes."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from pico_store.importing.claude_message import (
    answered_calls,
    assistant_draft,
    tool_calls,
    user_drafts,
)
from pico_store.importing.errors import TranscriptError
from pico_store.importing.fields import Fields, unix_ms
from pico_store.importing.lines import Line
from pico_store.importing.transcript import Draft, Node, Transcript, note
from pico_store.records import JsonObject, JsonValue

NAME = "claude-code"


def recognises(record: JsonObject) -> bool:
    """Tell whether a record can only come from such a transcript."""
    if not isinstance(record.get("type"), str):
        return False
    if isinstance(record.get("uuid"), str):
        return isinstance(record.get("sessionId"), str) or "parentUuid" in record
    return record["type"] == "summary" and isinstance(record.get("leafUuid"), str)


def read(lines: list[Line]) -> Transcript:
    """Return the transcript of a file's lines.

    One answer of the model is one message, although the file holds a record for each of its
    blocks; the results of calls that ran at once follow one another, although the file has them
    as branches. What remains of the tree are the places where people went back and went on
    differently. Records that are no messages stand behind the message that they belong to.
    """
    transcript = Transcript(NAME, None)
    records = _Records()
    for line in lines:
        transcript.repeated += not records.add(line)
    transcript.session_id = records.session_id()
    transcript.lost_parents = records.lost_parents()
    groups = _group(records)
    _chain_results(groups)
    calls: dict[str, str] = {}
    for group in groups:
        calls.update(group.calls)
    time = 0
    for group in groups:
        time = group.members[0].time or time
        fields = [Fields(member.record, member.line) for member in group.members]
        if group.answer:
            drafts = [assistant_draft(fields, time)]
        else:
            drafts = user_drafts(fields[0], time, calls)
        first, last = group.members[0], group.members[-1]
        transcript.nodes.append(
            Node(first.line, last.line, group.parent, drafts, side=first.side is not None)
        )
    _place_notes(records, transcript)
    return transcript


@dataclass(slots=True, eq=False)
class _Record:
    """One line of the file and its place."""

    line: int
    record: JsonObject
    name: str
    """The type."""
    parent: str | None
    """The uuid of the record that it follows, across a compaction too."""
    side: str | None
    """The sidechain it belongs to; ``None``: the conversation that people had."""
    time: int | None
    answer: str | None
    """The model provider's id of the answer that it is a part of."""
    is_message: bool
    group: int | None = None
    """The index of the group that a message belongs to."""

    @property
    def content(self) -> JsonValue:
        message = self.record.get("message")
        return message.get("content") if isinstance(message, dict) else None


@dataclass(slots=True, eq=False)
class _Group:
    """The records of one message."""

    members: list[_Record]
    answer: bool
    parent: int | None = None
    calls: dict[str, str] = field(default_factory=dict)
    """The tool calls of an answer: names by id."""
    answers: set[str] = field(default_factory=set)
    """The calls that a user record answers."""


class _Records:
    """All records of a file, and what follows what."""

    def __init__(self) -> None:
        self.all: list[_Record] = []
        self._by_uuid: dict[str, _Record] = {}
        self._messages: dict[str | None, list[_Record]] = {}
        # What `message_before` found, by the identity of the record.
        self._before: dict[int, _Record | None] = {}

    def add(self, line: Line) -> bool:
        """Add a line's record; False if the file holds it already, word for word."""
        record = line.record
        name = record.get("type")
        if not isinstance(name, str):
            raise TranscriptError("no type; needed: a text", line.number)
        uuid = _text(record, "uuid")
        known = self._by_uuid.get(uuid) if uuid is not None else None
        if known is not None and known.record == record:
            return False
        message = record.get("message")
        is_message = name in ("user", "assistant") and uuid is not None
        if is_message and not isinstance(message, dict):
            raise TranscriptError("no message; needed: an object", line.number)
        side = None
        if record.get("isSidechain") is True:
            side = _text(record, "agentId") or ""
        answer = None
        if name == "assistant" and isinstance(message, dict):
            answer = _text(message, "id")
        found = _Record(
            line.number,
            record,
            name,
            _text(record, "parentUuid") or _text(record, "logicalParentUuid"),
            side,
            unix_ms(_text(record, "timestamp")),
            answer,
            is_message,
        )
        self.all.append(found)
        if is_message:
            self._messages.setdefault(side, []).append(found)
        if uuid is not None:
            self._by_uuid.setdefault(uuid, found)
        return True

    def session_id(self) -> str | None:
        """Return the id that most records state; the first of several that are as frequent."""
        ids = Counter(id for r in self.all if (id := _text(r.record, "sessionId")))
        return ids.most_common(1)[0][0] if ids else None

    def lost_parents(self) -> int:
        """Count the records whose parent the file lacks."""
        return sum(r.parent is not None and r.parent not in self._by_uuid for r in self.all)

    def message_before(self, record: _Record) -> _Record | None:
        """Return the message that a record follows, notes between them passed over.

        A record whose parent the file lacks follows the last message above it.

        Raises:
            TranscriptError: The records name one another as parents in a circle.
        """
        passed: dict[int, _Record] = {}
        found: _Record | None = None
        step = record
        while id(step) not in self._before:
            if id(step) in passed:
                raise TranscriptError("follows itself, by its parents", record.line)
            passed[id(step)] = step
            above = self._by_uuid.get(step.parent) if step.parent is not None else None
            if step.parent is None or (above is not None and above.is_message):
                found = above
                break
            if above is None:
                found = self.last_message(step)
                break
            step = above
        else:
            found = self._before[id(step)]
        self._before.update(dict.fromkeys(passed, found))
        return found

    def last_message(self, record: _Record) -> _Record | None:
        """Return the last message above a record in its sidechain, or in the main conversation."""
        messages = self._messages.get(record.side, [])
        place = bisect_left(messages, record.line, key=lambda message: message.line)
        return messages[place - 1] if place else None


def _text(record: JsonObject, name: str) -> str | None:
    value = record.get(name)
    return value if isinstance(value, str) else None


def _group(records: _Records) -> list[_Group]:
    """Gather the records of each message, and link the messages."""
    groups: list[_Group] = []
    before: list[_Record | None] = []
    open_answers: dict[tuple[str | None, str], int] = {}
    for record in records.all:
        if not record.is_message:
            continue
        previous = records.message_before(record)
        if previous is not None and previous.side != record.side:
            # A sidechain is a conversation of its own; the main one passes over it.
            previous = records.last_message(record) if record.side is None else None
        if record.answer is not None:
            index = open_answers.get((record.side, record.answer))
            if index is not None and _continues(previous, index, groups, records):
                record.group = index
                groups[index].members.append(record)
                groups[index].calls.update(tool_calls(record.content))
                continue
            open_answers[record.side, record.answer] = len(groups)
        record.group = len(groups)
        group = _Group([record], record.name == "assistant")
        if group.answer:
            group.calls = tool_calls(record.content)
        else:
            group.answers = answered_calls(record.content)
        groups.append(group)
        before.append(previous)
    for group, previous in zip(groups, before, strict=True):
        group.parent = previous.group if previous is not None else None
    return groups


def _continues(
    previous: _Record | None, index: int, groups: list[_Group], records: _Records
) -> bool:
    """Tell whether a record behind ``previous`` goes on with the answer ``groups[index]``.

    Results may stand between the parts of an answer, since a tool can be done before the next
    block has arrived.
    """
    while previous is not None and previous.group is not None:
        if previous.group == index:
            return True
        if not groups[previous.group].answers:
            return False
        previous = records.message_before(previous)
    return False


def _chain_results(groups: list[_Group]) -> None:
    """Put the results of an answer's calls behind it, one after the other.

    What followed the answer or one of its results follows all of them then. A second result for
    one call stays a branch: somebody ran it again.
    """
    chains: dict[int, list[int]] = {}
    # The answer behind which a result stands.
    owner: dict[int, int] = {}
    answered: dict[int, set[str]] = {}
    for index, group in enumerate(groups):
        if not group.answers or group.parent is None:
            continue
        source = owner.get(group.parent, group.parent)
        calls = groups[source].calls
        done = answered.setdefault(source, set())
        if not group.answers <= calls.keys() or group.answers & done:
            continue
        done |= group.answers
        chain = chains.setdefault(source, [])
        owner[index] = source
        group.parent = chain[-1] if chain else source
        chain.append(index)
    for index, group in enumerate(groups):
        if group.parent is None or index in owner or group.answers:
            continue
        source = owner.get(group.parent, group.parent)
        if source in chains:
            group.parent = chains[source][-1]


def _place_notes(records: _Records, transcript: Transcript) -> None:
    """Put the records that are no messages behind those that they belong to."""
    last: int | None = None
    for record in records.all:
        if record.is_message:
            last = record.group if record.side is None or last is None else last
            continue
        previous = records.message_before(record) if record.parent is not None else None
        place = previous.group if previous is not None else last
        draft: Draft = note(record.line, record.record, record.name)
        if place is None:
            transcript.preface.append(draft)
        else:
            transcript.nodes[place].notes.append(draft)
