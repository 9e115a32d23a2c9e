"""The workload "turns": what a session of an agent commits, turn after turn.

A turn is 48 commits of 63 writes:

====  ==================================================================================
1     accepted: inbox append, result value, inbox remove, user entry, generation task
2     the generation streams
3     20 frames of about 60 bytes, a scratch append and a commit each
4     assistant entry, tool task, follow-up task, generation settled, usage, totals
5     the tool runs
6     tool result entry, tool settled
7     follow-up settled, next generation task
8, 9  as 2 and 3
10    assistant entry, generation settled, usage, totals, result value
====  ==================================================================================

About 8 KB are written, of which half must survive: the rest is frames, states that later ones
replace, and an inbox that empties.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final

from msgspec import UNSET

from pico_bench.text import cut, prose, source
from pico_store.address import ConversationAddress, MainAddress, ScratchAddress, Seq, SessionAddress
from pico_store.batch import (
    Batch,
    ListAppend,
    ListRemove,
    MainBatch,
    MainWrite,
    PatchTask,
    ScratchBatch,
    SettleTask,
    ValueSet,
)
from pico_store.records import Conversation, Entry, JsonObject, JsonValue, Task
from pico_store.strict_json import json_size

ROOT: Final = Seq(1)
FRAMES: Final = 20
COMMITS_A_TURN: Final = 48
WRITES_A_TURN: Final = 63
INBOX: Final = ConversationAddress(ROOT, "pi.inbox")
USAGE: Final = SessionAddress("pi.usage")
TOTALS: Final = SessionAddress("pi.usage.totals")
_MODEL: Final = "faux/model-1"
_TURN_MS: Final = 7_000


def opening() -> MainBatch:
    """Return the commit that a session begins with; the first turn comes after it."""
    return MainBatch((Conversation(id=ROOT),))


class Turns:
    """Makes the batches of one turn after another; the same seed gives the same ones."""

    def __init__(self, seed: int = 1, *, last: int = ROOT, frames: int = FRAMES) -> None:
        """Begin after number ``last``, with so many frames each time a model streams."""
        self.last = last
        """The number of the last write that was made."""
        self._random = Random(seed)
        self._frames = frames
        self._turn = 0
        self._totals: dict[str, int] = {"input": 0, "output": 0, "attempts": 0}
        self._batches: list[Batch] = []

    def turn(self) -> list[Batch]:
        """Return the commits of the next turn."""
        self._batches = []
        self._turn += 1
        inbox, result = self._accept()
        generation = Seq(self.last)
        self._stream(generation, inbox, cut(self._random, prose(), 480))
        tool = self._answer_with_call(generation, inbox)
        generation = self._run_tool(tool, inbox)
        text = cut(self._random, prose(), 580)
        self._stream(generation, inbox, text)
        self._finish(generation, inbox, result, text)
        return self._batches

    def _commit(self, *writes: MainWrite) -> None:
        self._batches.append(MainBatch(writes))
        self.last += len(writes)

    def _next(self, offset: int = 0) -> Seq:
        return Seq(self.last + 1 + offset)

    def _accept(self) -> tuple[Seq, ConversationAddress]:
        inbox, user = self._next(), self._next(3)
        text = cut(self._random, prose(), 200)
        message: JsonObject = {"role": "user", "content": text, "timestamp": self._now()}
        queued: JsonObject = {"mode": "followUp", "entry": {"kind": "user", "model": [message]}}
        result = ConversationAddress(ROOT, "pi.inputResult", str(inbox))
        self._commit(
            ListAppend(INBOX, queued),
            ValueSet(result, {"status": "running", "placementEntryId": user}),
            ListRemove(INBOX, inbox),
            Entry(id=user, conversation_id=ROOT, kind="user", model=[message]),
            self._generation(self._next(4), inbox),
        )
        return inbox, result

    def _stream(self, generation: Seq, inbox: Seq, text: str) -> None:
        state = _generation_state("streaming", inbox)
        self._commit(PatchTask(generation, "streaming", "inflight", state))
        frames = ScratchAddress(generation, "frames")
        size = len(text) // FRAMES
        for index in range(self._frames):
            delta = text[index * size : (index + 1) * size]
            frame: JsonObject = {"t": "text_delta", "i": 0, "d": delta}
            self._batches.append(ScratchBatch(generation, (ListAppend(frames, frame),)))
        self.last += self._frames

    def _answer_with_call(self, generation: Seq, inbox: Seq) -> Seq:
        entry, tool, follow_up = self._next(), self._next(1), self._next(2)
        call = self._call()
        self._commit(
            self._assistant(entry, generation, cut(self._random, prose(), 480), call),
            _task(tool, "tool", {"status": "planned", "call": call, "assistant": entry}),
            _task(
                follow_up,
                "post_tools",
                {"status": "pending", "inputs": [inbox], "tools": [tool]},
                after=(tool,),
            ),
            SettleTask(generation, "done", {"status": "done", "inputs": [inbox], "result": entry}),
            ListAppend(USAGE, self._usage(generation)),
            ValueSet(TOTALS, dict(self._totals)),
        )
        return tool

    def _run_tool(self, tool: Seq, inbox: Seq) -> Seq:
        call, assistant, follow_up = self._call(), tool - 1, Seq(tool + 1)
        running: JsonObject = {"status": "running", "call": call, "assistant": assistant}
        running |= {"args": call["arguments"], "replay": "safe"}
        self._commit(PatchTask(tool, "running", "inflight", running))
        entry = self._next()
        done: JsonObject = {"status": "done", "call": call, "assistant": assistant}
        done |= {"result": entry, "output": {"isError": False}}
        self._commit(self._tool_result(entry, tool), SettleTask(tool, "done", done))
        generation = self._next(1)
        settled: JsonObject = {"status": "done", "inputs": [inbox], "tools": [tool]}
        self._commit(SettleTask(follow_up, "done", settled), self._generation(generation, inbox))
        return generation

    def _finish(self, generation: Seq, inbox: Seq, result: ConversationAddress, text: str) -> None:
        entry = self._next()
        outcome: JsonObject = {"status": "done", "placementEntryId": inbox + 3}
        self._commit(
            self._assistant(entry, generation, text, None),
            SettleTask(generation, "done", {"status": "done", "inputs": [inbox], "result": entry}),
            ListAppend(USAGE, self._usage(generation)),
            ValueSet(TOTALS, dict(self._totals)),
            ValueSet(result, {**outcome, "resultEntryId": entry}),
        )

    # --- Records ---

    def _generation(self, id: Seq, inbox: Seq) -> Task:
        return _task(id, "generation", _generation_state("pending", inbox))

    def _assistant(self, id: Seq, task: Seq, text: str, call: JsonObject | None) -> Entry:
        content: list[JsonValue] = [{"type": "text", "text": text}]
        if call is not None:
            content.append({"type": "toolCall", **call})
        message: JsonObject = {
            "role": "assistant",
            "content": content,
            "provider": "faux",
            "model": "model-1",
            "stopReason": "stop" if call is None else "toolUse",
            "usage": {"input": 1200, "output": 180, "cost": 0.0123},
            "timestamp": self._now(),
        }
        return Entry(
            id=id, conversation_id=ROOT, kind="assistant", by_task_id=task, model=[message]
        )

    def _tool_result(self, id: Seq, task: Seq) -> Entry:
        call = self._call_id()
        message: JsonObject = {
            "role": "toolResult",
            "toolCallId": call,
            "toolName": "read",
            "isError": False,
            "content": [{"type": "text", "text": cut(self._random, source(), 1300)}],
            "timestamp": self._now(),
        }
        return Entry(
            id=id,
            conversation_id=ROOT,
            kind="tool_result",
            key=call,
            by_task_id=task,
            data={"status": "done", "truncated": False, "lines": 40},
            model=[message],
        )

    def _usage(self, task: Seq) -> JsonObject:
        random = self._random
        taken = {"input": random.randrange(500, 90_000), "output": random.randrange(50, 900)}
        for name, count in taken.items():
            self._totals[name] += count
        self._totals["attempts"] += 1
        cost = round(random.random() / 10, 6)
        cached = random.randrange(90_000)
        used: JsonObject = {"conversation": ROOT, "task": task, "model": _MODEL}
        return used | {**taken, "cacheRead": cached, "cost": cost}

    def _call(self) -> JsonObject:
        path: JsonObject = {"path": "src/package/module.py", "offset": 1, "limit": 80}
        return {"id": self._call_id(), "name": "read", "arguments": path}

    def _call_id(self) -> str:
        return f"call_{self._turn:08d}abcd"

    def _now(self) -> int:
        return 1_700_000_000_000 + self._turn * _TURN_MS


def _task(id: Seq, kind: str, state: JsonObject, *, after: tuple[Seq, ...] = ()) -> Task:
    status = state["status"]
    assert isinstance(status, str)
    return Task(
        id=id,
        conversation_id=ROOT,
        kind=kind,
        status=status,
        role="start",
        state=state,
        after=after,
    )


def _generation_state(status: str, inbox: Seq) -> JsonObject:
    tools: list[JsonValue] = ["read", "grep", "bash"]
    retry: JsonObject = {"max": 3, "baseMs": 1000}
    state: JsonObject = {"status": status, "inputs": [inbox], "attempt": 1, "model": _MODEL}
    return state | {"thinking": "off", "tools": tools, "retry": retry}


def entry_payload(entry: Entry) -> JsonObject:
    """Return what an entry holds beside its indexed parts."""
    payload: JsonObject = {}
    if entry.model is not None:
        payload["model"] = list[JsonValue](entry.model)
    if entry.data is not UNSET:
        payload["data"] = entry.data
    return payload


class Weight:
    """How many bytes of JSON were written, and how many of them must survive."""

    def __init__(self) -> None:
        self.written = 0
        self._kept = 0
        self._values: dict[MainAddress, int] = {}
        self._elements: dict[int, int] = {}

    @property
    def surviving(self) -> int:
        """The size of entries, last task states, current values and elements, without framing."""
        return self._kept + sum(self._values.values()) + sum(self._elements.values())

    def add(self, first: int, batches: Iterable[Batch]) -> None:
        """Weigh batches of the workload, the first of which begins with a number."""
        for batch in batches:
            for seq, write in enumerate(batch.writes, first):
                self._add(seq, write)
            first += len(batch.writes)

    def _add(self, seq: int, write: MainWrite) -> None:
        match write:
            case Entry():
                self._kept += self._size(entry_payload(write))
            case Task() | PatchTask():
                self._size(write.state)
            case SettleTask():
                self._kept += self._size(write.state)
            case ValueSet(SessionAddress() | ConversationAddress() as address):
                self._values[address] = self._size(write.value)
            case ListAppend(ScratchAddress()):
                self._size(write.value)
            case ListAppend():
                self._elements[seq] = self._size(write.value)
            case ListRemove():
                del self._elements[write.element]

    def _size(self, value: JsonValue) -> int:
        size = json_size(value)
        self.written += size
        return size
