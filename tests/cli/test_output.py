"""What is printed is safe for a terminal, and progress is shown on one only."""

import io
import json

import pytest

from pico_store.commands.excerpt import entry_line
from pico_store.commands.output import counted, plural, print_json, shorten, table, visible
from pico_store.commands.show import tree_lines
from pico_store.records import Conversation, Entry, ForkPoint
from tests.cli.running import Pico
from tests.importing.transcripts import jsonl, user


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("é → 日本", "é → 日本"),
        ("\x1b[2J\x07", "\\x1b[2J\\x07"),
        ("a\nb\rc\td", "a\\nb\\rc\\td"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("\x9b31m", "\\x9b31m"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_a_transcript_cannot_steer_the_terminal(
    pico: Pico, tmp_path: pytest.TempPathFactory
) -> None:
    file = f"{tmp_path}/evil.jsonl"
    evil = "\x1b]0;owned\x07 \x1b[2J"
    with open(file, "wb") as stream:
        stream.write(jsonl([user("u", None, evil, sessionId=f"s{evil}")]))
    url = f"sqlite:{tmp_path}/evil.db"

    outputs = [pico.done("import", file, url)]
    outputs += [pico.done(name, url) for name in ("sessions", "show", "context", "digest")]

    assert not any("\x1b" in out or "\x07" in out for out in outputs)


def test_json_stays_json_whatever_the_terminal_holds(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": "é\x1b\u2028"})

    assert json.loads(capsys.readouterr().out) == {"text": "é\x1b\u2028"}


def test_a_line_is_cut_to_its_width() -> None:
    assert shorten("a  b\n c", 5) == "a b c"
    assert shorten("abcdef", 5) == "abcd…"
    assert len(shorten("x" * 1_000_000, 100)) == 100


def test_columns_are_aligned() -> None:
    assert list(table([("a", "b"), ("long", "c")])) == ["a     b", "long  c"]


def test_one_is_not_many() -> None:
    assert [plural(n, "item") for n in (0, 1, 2000)] == ["0 items", "1 item", "2,000 items"]
    assert [plural(n, "entry") for n in (1, 2)] == ["1 entry", "2 entries"]


def test_progress_is_shown_on_a_terminal_and_taken_away() -> None:
    stream = Terminal()

    passed = list(counted(range(2500), "items", stream))

    assert passed == list(range(2500))
    assert stream.getvalue() == "\ritems: 1,000\ritems: 2,000\r\x1b[K"


def test_progress_is_quiet_in_a_pipe() -> None:
    stream = io.StringIO()

    assert list(counted(range(2500), "items", stream)) == list(range(2500))
    assert stream.getvalue() == ""


def test_progress_is_taken_away_when_the_work_fails() -> None:
    stream = Terminal()

    with pytest.raises(ZeroDivisionError):
        list(counted((1 // n for n in (1, 0)), "items", stream))

    assert stream.getvalue() == "\r\x1b[K"


def test_a_deep_chain_of_forks_is_drawn() -> None:
    chain = [Conversation(id=1)]  # type: ignore[arg-type]
    for number in range(2, 1500):
        point = ForkPoint(conversation_id=number - 1, at=5)  # type: ignore[arg-type]
        chain.append(Conversation(id=number, parent=point))  # type: ignore[arg-type]

    lines = list(tree_lines(chain, chain[0].id))

    assert len(lines) == len(chain)
    assert max(map(len, lines)) < 100


def test_a_fork_of_a_deleted_conversation_stands_by_itself() -> None:
    point = ForkPoint(conversation_id=7, at=5)  # type: ignore[arg-type]
    orphan = Conversation(id=9, parent=point, owner=4)  # type: ignore[arg-type]

    assert list(tree_lines([orphan], orphan.id)) == ["* 9  fork of 7 at 5  owned by task 4"]


def test_an_entry_shows_its_controls() -> None:
    entry = Entry(id=5, conversation_id=1, kind="summary", head=3, data={"a": 1})  # type: ignore[arg-type]

    assert entry_line(entry) == '       5  summary       [head 3] ({"a": 1})'
