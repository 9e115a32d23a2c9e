"""A real session of a coding agent, where the checkout stands beside the shared data."""

from pathlib import Path

import pytest

from pico_store.address import Seq
from pico_store.context import derive_context
from pico_store.importing import ImportReport, import_transcript, read_transcript
from pico_store.importing.load import PROVENANCE
from pico_store.storage import Store
from tests.importing.committing import commit_all
from tests.importing.reading import entries, opened

FILE = Path(__file__).resolve().parents[3] / "shared" / "data" / "coding-session.jsonl"

pytestmark = pytest.mark.skipif(
    not FILE.exists(), reason="the promise of real input needs ../shared/data/coding-session.jsonl"
)


@pytest.fixture
def report(store: Store) -> ImportReport:
    with FILE.open("rb") as stream:
        return import_transcript(read_transcript(stream), store, "s")


def test_nothing_of_the_file_is_lost(report: ImportReport) -> None:
    assert report.lines == report.entries == 1019
    assert report.kinds == {
        "assistant": 453,
        "import.model_change": 1,
        "import.session": 1,
        "import.thinking_level_change": 103,
        "tool_result": 373,
        "user": 88,
    }


def test_every_finished_answer_is_shown_to_the_model(store: Store, report: ImportReport) -> None:
    answers = [e for e in entries(opened(store)) if e.kind == "assistant"]
    hidden = [e for e in answers if e.model is None]

    assert report.kinds["assistant"] == len(answers)
    assert len(hidden) == 22


def test_every_result_follows_its_call(store: Store, report: ImportReport) -> None:
    called: set[str] = set()
    messages = derive_context(opened(store), Seq(1)).messages
    for message in messages:
        content = message["content"]
        if message["role"] == "assistant" and isinstance(content, list):
            blocks = [b for b in content if isinstance(b, dict) and b["type"] == "toolCall"]
            called |= {str(block["id"]) for block in blocks}
        elif message["role"] == "toolResult":
            assert message["toolCallId"] in called

    assert len([m for m in messages if m["role"] == "toolResult"]) == report.kinds["tool_result"]


def test_it_could_have_been_committed(store: Store, report: ImportReport) -> None:
    items = list(opened(store).export())

    again = store.create("again")
    commit_all(again, items)

    assert list(again.export()) == items
    assert report.last_seq == again.last_seq
    origin = again.get_value(PROVENANCE)
    assert origin is not None
    assert origin.value == {"format": "pi", "lines": 1019}
