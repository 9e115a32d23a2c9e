"""What a file must be to be imported, and how the line at fault is named."""

import gzip
import io
import json

import pytest

from pico_store.importing import TranscriptError, read_transcript
from pico_store.importing.lines import read_lines
from pico_store.records import JsonObject
from pico_store.storage import Store
from tests.importing.reading import entries, opened, said
from tests.importing.transcripts import import_bytes, jsonl, pi_header, pi_user, user

GOOD = jsonl([pi_header(), pi_user(1, "hi"), pi_user(2, "there")])


def refused(data: bytes) -> str:
    with pytest.raises(TranscriptError) as caught:
        read_transcript(io.BytesIO(data))
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "the file is empty"),
        (b"\n \r\n\n", "the file is empty"),
        (gzip.compress(GOOD), "the file is compressed (gzip); unpack it first"),
        (b"\x7fELF\x02\x01\0\0", "a binary file (a zero byte at offset 6)"),
        ("{}\n".encode("utf-16-le"), "a binary file (a zero byte at offset 1)"),
        (b"\xff\xfe\xfa\n", "line 1: not UTF-8 at byte 0"),
        (b"just text\n", "line 1: not JSON: Expecting value at character 0"),
        (b'{"a": 1}\n', "not a transcript of a known format; known: pi, claude-code"),
        (jsonl([pi_header()]), "the file holds no messages (1 records of format pi)"),
        (b"[1]\n", "line 1: holds a list; allowed: an object on each line"),
        (b"null\n", "line 1: holds null; allowed: an object on each line"),
    ],
)
def test_what_is_no_transcript_is_said(data: bytes, problem: str) -> None:
    assert refused(data).startswith(problem)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b'{"type": "x",}', "not JSON: "),
        (b'{"type": "x", "type": "x"}', "key 'type' repeated"),
        (b'{"type": "x", "n": NaN}', "NaN"),
        (b'{"type": "x", "n": 1e999}', "1e999 is too large"),
        (b'{"type": "\xc3"}', "not UTF-8 at byte 10"),
        (b'{"n": 1}', "no type; needed: a text"),
        (b'{"type": 5}', "no type; needed: a text"),
        (b'{"type": "x", "n": ' + b"9" * 30 + b"}", "cannot be stored: n"),
        (b'{"type": "x", "n": ' + b"[" * 201 + b"]" * 201 + b"}", "cannot be stored: n"),
        (b'{"type": "' + b"k" * 1100 + b'"}', "a type of 1,107 bytes; allowed: 1,024"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_is_imported(
    store: Store, line: bytes, problem: str
) -> None:
    # The blank line counts: editors count it too.
    header, first, second = GOOD.splitlines(keepends=True)

    with pytest.raises(TranscriptError) as caught:
        import_bytes(store, header + b"\n" + first + line + b"\n" + second)

    assert str(caught.value).startswith(f"line 4: {problem}")
    assert caught.value.line == 4
    assert store.sessions() == []


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_file_that_ends_inside_a_line_is_not_imported(store: Store, cut: int) -> None:
    with pytest.raises(TranscriptError, match="line 3: the file ends inside this line"):
        import_bytes(store, GOOD[: -1 - cut])

    assert store.sessions() == []


def test_a_last_line_without_its_end_is_read_if_it_is_whole(store: Store) -> None:
    import_bytes(store, GOOD[:-1])

    assert said(opened(store)) == ["hi", "there"]


def test_lines_end_at_line_feeds_only(store: Store) -> None:
    separators = "a\u2028b\u2029c\x85d"
    raw = json.dumps(pi_user(1, separators), ensure_ascii=False).encode()

    import_bytes(store, jsonl([pi_header()]) + raw + b"\r\n")

    assert said(opened(store)) == [separators]


def test_a_byte_order_mark_is_passed_over(store: Store) -> None:
    import_bytes(store, b"\xef\xbb\xbf" + GOOD)

    assert said(opened(store)) == ["hi", "there"]


def test_lone_surrogates_are_replaced_and_counted(store: Store) -> None:
    report = import_bytes(
        store, jsonl([pi_header(), pi_user(1, "a\ud800b \U0001f600 \udc00\ud800")])
    )

    assert said(opened(store)) == ["a\ufffdb \U0001f600 \ufffd\ufffd"]
    assert report.replaced == 3


def test_keys_that_differ_in_surrogates_only_stay_two(store: Store) -> None:
    odd: JsonObject = dict(zip(("\ud800", "\udfff", "\ufffd"), (1, 2, 3), strict=True))

    import_bytes(store, jsonl([pi_header(), pi_user(1, "hi"), {"type": "odd", "odd": odd}]))

    (entry,) = (e for e in entries(opened(store)) if e.kind == "import.odd")
    assert isinstance(entry.data, dict)
    assert entry.data["odd"] == {"\ufffd": 1, "\ufffd\ufffd": 2, "\ufffd\ufffd\ufffd": 3}


def test_a_pair_of_escapes_is_one_character() -> None:
    (line,) = read_lines(io.BytesIO(b'{"a": "\\ud83d\\ude00"}\n'))

    assert (line.record, line.replaced) == ({"a": "\U0001f600"}, 0)


def test_an_escape_that_is_deep_inside_is_refused_by_its_depth() -> None:
    deep = b'{"a":' + b"[" * 300 + b'"\\ud800"' + b"]" * 300 + b"}"

    with pytest.raises(TranscriptError, match="line 1: nested deeper than 200 levels"):
        list(read_lines(io.BytesIO(deep)))


def test_the_format_is_told_by_the_first_record_that_tells(store: Store) -> None:
    report = import_bytes(store, jsonl([{"type": "mode", "mode": "x"}, user("u1", None, "hi")]))

    assert report.format == "claude-code"
    assert said(opened(store)) == ["hi"]
