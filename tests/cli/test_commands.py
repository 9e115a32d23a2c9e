"""What each command does to a store, and what it prints."""

from pathlib import Path

import pytest

from pico_store.backends import open_store
from pico_store.digest import digest
from pico_store.records import JsonObject, JsonValue
from tests.cli.conftest import BRANCHED
from tests.cli.running import Pico
from tests.importing.transcripts import SESSION, assistant, jsonl, text, user


def objects(value: JsonValue) -> list[JsonObject]:
    assert isinstance(value, list)
    return [item for item in value if isinstance(item, dict)]


def ids(value: JsonValue) -> list[JsonValue]:
    return [item["id"] for item in objects(value)]


def test_import_says_what_it_found(pico: Pico, transcript: str, tmp_path: Path) -> None:
    out = pico.done("import", transcript, f"sqlite:{tmp_path / 'a.db'}")

    assert out.splitlines() == [
        f"session {SESSION}: imported 7 lines of format claude-code",
        "  2 conversations, 7 entries:",
        "         3  assistant",
        "         1  import.system",
        "         1  tool_result",
        "         2  user",
        "  1 record without a message kept as import.* entries, which no model sees",
    ]


def test_import_in_json(pico: Pico, transcript: str, tmp_path: Path) -> None:
    found = pico.json("import", transcript, f"sqlite:{tmp_path / 'a.db'}", "--session", "x")

    assert found == {
        "session": "x",
        "format": "claude-code",
        "lastSeq": 10,
        "lines": 7,
        "conversations": 2,
        "entries": 7,
        "kinds": {"assistant": 3, "import.system": 1, "tool_result": 1, "user": 2},
        "notes": {"system": 1},
        "replaced": 0,
        "repeated": 0,
        "lostParents": 0,
    }


def test_a_file_without_an_id_gives_its_name(pico: Pico, tmp_path: Path) -> None:
    file = tmp_path / "my session.jsonl"
    line = {name: part for name, part in user("u", None, "hi").items() if name != "sessionId"}
    file.write_bytes(jsonl([line]))

    assert pico.json("import", str(file), f"sqlite:{tmp_path / 'a.db'}")["session"] == "my session"


def test_import_into_a_session_that_exists_is_refused(
    pico: Pico, transcript: str, url: str
) -> None:
    ended = pico("import", transcript, url, "--session", "s")

    assert ended.code == 2
    assert ended.err == f"pico: {url} holds a session 's' already; name another: --session ID\n"


def test_a_malformed_file_makes_no_store(pico: Pico, transcript: str, tmp_path: Path) -> None:
    Path(transcript).write_bytes(jsonl(BRANCHED[:2]) + b'{"type": oops}\n')
    store = tmp_path / "a.db"

    ended = pico("import", transcript, f"sqlite:{store}")

    assert ended.code == 2
    assert ended.err.startswith(f"pico: {transcript}: line 3: not JSON: ")
    assert not store.exists()


def test_a_value_that_cannot_be_stored_makes_no_session(
    pico: Pico, transcript: str, url: str
) -> None:
    Path(transcript).write_bytes(jsonl(BRANCHED) + b'{"type": "x", "n": %s}\n' % (b"9" * 25))

    ended = pico("import", transcript, url, "--session", "t")

    assert ended.code == 2
    assert ended.err.startswith(f"pico: {transcript}: line 8: cannot be stored: n: ")
    assert ids(pico.json("sessions", url)["sessions"]) == ["s"]


@pytest.mark.parametrize("file", ["{tmp}/none.jsonl", "{tmp}"])
def test_a_file_that_cannot_be_read_is_named(pico: Pico, tmp_path: Path, file: str) -> None:
    name = file.format(tmp=tmp_path)

    ended = pico("import", name, "memory:")

    assert ended.code == 2
    assert ended.err.startswith(f"pico: cannot read {name}: ")


def test_import_into_memory_says_that_nothing_stays(pico: Pico, transcript: str) -> None:
    ended = pico("import", transcript, "memory:")

    assert ended.code == 0
    assert ended.err == "pico: memory: ends with this command; nothing of it is kept\n"


def test_sessions_lists_them(pico: Pico, url: str, transcript: str) -> None:
    pico.done("import", transcript, url)

    assert pico.done("sessions", url).splitlines()[0].split() == [
        "SESSION",
        "NUMBERS",
        "OPENED",
        "OWNER",
    ]
    assert ids(pico.json("sessions", url)["sessions"]) == [SESSION, "s"]


def test_sessions_names_a_live_owner(pico: Pico, url: str) -> None:
    store = open_store(url)
    storage = store.open("s")

    (line,) = pico.done("sessions", url).splitlines()[1:]

    storage.close()
    store.close()
    assert " process " in line


def test_a_store_without_sessions_says_so(pico: Pico, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'empty.db'}"
    open_store(url).close()

    assert pico.done("sessions", url) == f"{url} holds no session\n"
    ended = pico("show", url)
    assert ended.code == 2
    assert ended.err.startswith(f"pico: {url} holds no session; make one: pico import FILE")


def test_show_draws_the_forks_and_the_transcript(pico: Pico, url: str) -> None:
    out = pico.done("show", url)

    assert out.splitlines() == [
        "session s, 10 numbers",
        "",
        "conversations:",
        "* 1  root",
        "    └ 9  fork of 1 at 5",
        "",
        "transcript of conversation 1:",
        "       3  user          hello",
        '       4  assistant     hi → Bash {"command": "ls"}',
        "       5  tool_result   seen",
        "       6  user          go right",
        '       7  import.system  ({"type": "system", "uuid": "y1", "parentUuid": "u2", '
        f'"sessionId": "{SESSION[:31]}…',
        "       8  assistant     right",
    ]


def test_show_turns_pages(pico: Pico, url: str) -> None:
    newest = pico.json("show", url, "--limit", "2")
    older = pico.json("show", url, "--limit", "2", "--before", str(newest["before"]))
    oldest = pico.json("show", url, "--limit", "9", "--before", str(older["before"]))

    assert ids(newest["entries"]) == [7, 8]
    assert ids(older["entries"]) == [5, 6]
    assert ids(oldest["entries"]) == [3, 4]
    assert oldest["before"] is None
    assert "older ones: --before 7" in pico.done("show", url, "--limit", "2")


def test_show_of_a_fork_shows_what_it_inherits(pico: Pico, url: str) -> None:
    assert ids(pico.json("show", url, "--conversation", "9")["entries"]) == [3, 4, 5, 10]


def test_context_is_what_the_library_derives(pico: Pico, url: str) -> None:
    found = pico.json("context", url, "s", "--at", "5")

    assert (found["head"], found["omitted"], found["at"]) == (None, [], 5)
    assert [item["entry"] for item in objects(found["items"])] == [3, 4, 5]
    roles = [m["role"] for i in objects(found["items"]) for m in objects(i["messages"])]
    assert roles == ["user", "assistant", "toolResult"]


def test_context_at_the_start_is_empty(pico: Pico, url: str) -> None:
    assert pico.json("context", url, "--at", "start")["items"] == []
    assert pico.done("context", url, "--at", "start") == (
        "context of conversation 1 at start: 0 entries, 0 messages, from the start\n"
    )


def test_fork_prints_the_new_conversation(pico: Pico, url: str) -> None:
    assert pico.done("fork", url, "--at", "4") == "11\n"
    assert pico.json("fork", url, "--at", "10", "--conversation", "9")["conversation"] == 12
    assert pico.done("fork", "--at", "start", url, "s") == "13\n"
    assert ids(pico.json("show", url, "--conversation", "12")["entries"]) == [3, 4, 5, 10]
    assert pico.json("show", url, "--conversation", "13")["entries"] == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["fork", "--at", "7000"], "conversation 1 shows no entry 7000; pico show lists what it"),
        (["fork", "--at", "10"], "conversation 1 shows no entry 10; pico show lists what it"),
        (["fork", "--at", "start", "--conversation", "2"], "no conversation 2; pico show lists"),
        (["context", "--at", "1"], "conversation 1 shows no entry 1; pico show lists what it"),
        (["context", "--conversation", "7"], "no conversation 7; pico show lists them"),
        (["show", "--conversation", "9007199254740993"], "no conversation 9007199254740993; pico"),
    ],
)
def test_what_the_session_does_not_hold_is_named_and_nothing_changes(
    pico: Pico, url: str, arguments: list[str], problem: str
) -> None:
    before = pico.done("digest", url)

    ended = pico(arguments[0], url, *arguments[1:])

    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"pico: {problem}")
    assert pico.done("digest", url) == before


def test_a_session_must_be_named_among_several(pico: Pico, url: str, transcript: str) -> None:
    pico.done("import", transcript, url, "--session", "t")

    ended = pico("show", url)

    assert ended.code == 2
    assert ended.err == f"pico: {url} holds 2 sessions; name one of: s, t\n"
    assert pico("show", url, "t").code == 0
    assert pico("show", url, "u").code == 2


@pytest.mark.parametrize("command", ["show", "context", "digest"])
def test_an_empty_name_is_no_session(pico: Pico, url: str, command: str) -> None:
    ended = pico(command, url, "")

    assert (ended.code, ended.out) == (2, "")


def test_a_session_cannot_be_named_by_nothing(pico: Pico, url: str, transcript: str) -> None:
    assert pico("import", transcript, url, "--session", "").code == 2
    assert ids(pico.json("sessions", url)["sessions"]) == ["s"]


def test_digest_is_that_of_the_export(pico: Pico, url: str) -> None:
    store = open_store(url)
    expected = digest(store.open("s", read_only=True).export())
    store.close()

    assert pico.done("digest", url) == f"{expected}  s\n"
    assert pico.json("digest", url)["digests"] == [
        {"session": "s", "lastSeq": 10} | {"digest": expected}
    ]


def test_verify_counts_what_it_read(pico: Pico, url: str) -> None:
    found = pico.json("verify", url)

    records = found["records"]
    assert isinstance(records, int)
    assert records > 7
    assert found["problems"] == []
    assert pico.done("verify", url).endswith(" read, 0 problems\n")


def test_copy_carries_everything_and_compares(pico: Pico, url: str, tmp_path: Path) -> None:
    other = f"sqlite:{tmp_path / 'other.db'}"

    out = pico.done("copy", url, other)

    assert out.endswith("  s  12 items, equal\n")
    assert pico.done("digest", other) == pico.done("digest", url)


def test_copy_takes_the_named_sessions_only(
    pico: Pico, url: str, transcript: str, tmp_path: Path
) -> None:
    for name in ("t", "u"):
        pico.done("import", transcript, url, "--session", name)
    other = f"sqlite:{tmp_path / 'other.db'}"

    found = pico.json("copy", url, other, "--session", "u", "--session", "s", "--session", "u")

    assert [copy["equal"] for copy in objects(found["copies"])] == [True, True]
    assert ids(pico.json("sessions", other)["sessions"]) == ["s", "u"]


def test_copy_of_what_is_not_there_makes_no_store(pico: Pico, url: str, tmp_path: Path) -> None:
    ended = pico("copy", url, f"sqlite:{tmp_path / 'other.db'}", "--session", "nope")

    assert ended.code == 2
    assert ended.err.startswith(f"pico: {url} holds no session 'nope'")
    assert not (tmp_path / "other.db").exists()


def test_copy_over_a_session_that_exists_copies_none(
    pico: Pico, url: str, transcript: str, tmp_path: Path
) -> None:
    other = f"sqlite:{tmp_path / 'other.db'}"
    pico.done("import", transcript, other, "--session", "s")
    pico.done("import", transcript, url, "--session", "a")

    ended = pico("copy", url, other)

    assert ended.code == 2
    assert "holds a session 's' already" in ended.err
    assert ids(pico.json("sessions", other)["sessions"]) == ["s"]


@pytest.mark.parametrize("scheme", ["sqlite", "lmdb", "jsonl"])
def test_an_interrupted_copy_goes_on(
    pico: Pico, url: str, transcript: str, tmp_path: Path, scheme: str
) -> None:
    pico.done("import", transcript, url, "--session", "t")
    other = f"{scheme}:{tmp_path / 'other'}"
    pico.done("copy", url, other, "--session", "s")
    pico.done("import", transcript, url, "--session", "a")

    lines = pico.done("copy", url, other, "--resume").splitlines()

    assert [line.split("  ")[1] for line in lines] == ["a", "s", "t"]
    assert [line.rsplit(", ", 1)[1] for line in lines] == ["equal", "was there", "equal"]
    assert pico.done("digest", other) == pico.done("digest", url)


@pytest.mark.parametrize("resume", [[], ["--resume"]])
@pytest.mark.parametrize("scheme", ["sqlite", "lmdb", "jsonl"])
def test_a_store_is_not_copied_to_itself(
    pico: Pico,
    transcript: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scheme: str,
    resume: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    source = f"{scheme}:{tmp_path}/here"
    pico.done("import", transcript, source)
    Path("link").symlink_to("here")
    paths = ["here", "./here", "///here", f"///{tmp_path}/here", f"{tmp_path}/here", "link"]

    for path in [*paths, "here?durability=power", f"../{tmp_path.name}/here"]:
        for pair in ([source, f"{scheme}:{path}"], [f"{scheme}:{path}", source]):
            ended = pico("copy", *pair, *resume)

            assert (ended.code, ended.out) == (2, "")
            assert ended.err.startswith(f"pico: {pair[1]} is the store {pair[0]} itself; ")


def test_a_session_that_went_on_is_no_interrupted_copy(
    pico: Pico, url: str, tmp_path: Path
) -> None:
    other = f"sqlite:{tmp_path / 'other.db'}"
    pico.done("copy", url, other)
    pico.done("fork", other, "--at", "4")

    ended = pico("copy", url, other, "--resume")

    assert ended.code == 1
    assert f"in {other}: NOT EQUAL" in ended.out


def test_backup_is_a_store_of_its_own(pico: Pico, url: str, tmp_path: Path) -> None:
    file = tmp_path / "backup.db"

    pico.done("backup", url, str(file))

    assert pico.done("digest", f"sqlite:{file}") == pico.done("digest", url)
    ended = pico("backup", url, str(file))
    assert ended.code == 3
    assert ended.err.startswith(f"pico: {file}: ")


def test_vacuum_changes_no_digest(pico: Pico, url: str) -> None:
    before = pico.done("digest", url)

    found = pico.json("vacuum", url)

    assert found["recordsDropped"] == 0
    assert pico.done("digest", url) == before


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (user("u2", "u1", "x", n=1 << 70), "line 2: cannot be stored: n: 1180591620717411303424"),
        (user("u1x", "u1x", "x"), "line 2: follows itself"),
    ],
)
def test_a_file_that_is_refused_makes_no_store(
    pico: Pico, tmp_path: Path, bad: JsonObject, problem: str
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_bytes(jsonl([user("u1", None, "hello"), bad]))

    ended = pico("import", str(file), f"sqlite:{tmp_path / 'new.db'}")

    assert ended.code == 2
    assert problem in ended.err
    assert not (tmp_path / "new.db").exists()


def test_a_wrong_value_in_a_later_part_of_an_answer_is_named_by_its_line(
    pico: Pico, tmp_path: Path
) -> None:
    file = tmp_path / "bad.jsonl"
    answer = [assistant("a1", "u1", "m", text("a")), assistant("a2", "a1", "m", text("b"))]
    answer[1]["n"] = 1 << 70
    file.write_bytes(jsonl([user("u1", None, "hello"), *answer]))

    ended = pico("import", str(file), f"sqlite:{tmp_path / 'new.db'}")

    assert "line 3: cannot be stored: n: " in ended.err


def test_a_parent_that_the_file_lacks_is_told(pico: Pico, tmp_path: Path) -> None:
    file = tmp_path / "torn.jsonl"
    file.write_bytes(jsonl([user("u1", None, "hello"), user("u9", "u8", "where am I?")]))

    out = pico.done("import", str(file), f"sqlite:{tmp_path / 'a.db'}")
    found = pico.json("import", str(file), f"sqlite:{tmp_path / 'b.db'}")

    assert "1 record names a parent that is not in the file; placed behind the last" in out
    assert found["lostParents"] == 1
