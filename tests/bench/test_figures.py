"""`pico figures` measures what it is asked for, and says plainly when a figure falls short."""

import json
from pathlib import Path

import msgspec
import pytest

from pico_bench.case import CaseError, Numbers, Setting, run_case
from pico_bench.figures import CASES, FIGURES, Figure
from pico_bench.large import SESSION, make_session, session_url
from pico_bench.large_case import calls, growth, make
from pico_bench.measuring import Measured, measure
from pico_bench.resident import private_bytes
from pico_store import cli
from pico_store.backends import open_store
from pico_store.query import EntryQuery

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "session.jsonl"
TINY = Setting(
    turns=3,
    commits=3,
    entries=1_200,
    few_entries=800,
    calls=3,
    seconds=0.2,
    tasks=100,
    blocking=2,
    session=str(EXAMPLE),
)
# What the cases measured on some machine, each figure just within its bar.
GOOD: dict[str, Numbers] = {
    "raw_sqlite": {"cpu_us": 10.0},
    "sqlite": {"cpu_us": 15.0, "disk": 135.0, "surviving": 100.0},
    "raw_memory": {"cpu_us": 1.0},
    "memory": {"cpu_us": 7.0},
    "one": {"commits_per_second": 100.0},
    "many": {"commits_per_second": 600.0},
    "raw_lmdb": {"cpu_us": 10.0},
    "lmdb": {"cpu_us": 22.0, "disk": 170.0, "surviving": 100.0},
    "lmdb_one": {"commits_per_second": 100.0},
    "lmdb_many": {"commits_per_second": 600.0},
    "large_lmdb": {"bytes": float(4 << 20), "ms": 10.0},
    "recorded_sqlite": {"disk": 50.0, "surviving": 100.0},
    "recorded_lmdb": {"disk": 50.0, "surviving": 100.0},
    "raw": {"cpu_us": 10.0},
    "turns": {"cpu_us": 40.0, "disk": 350.0, "vacuumed": 130.0, "surviving": 100.0},
    "large": {"cpu": 10.0, "bytes": float(400 << 20)},
    "make": {},
    "calls": {"open": 1.2, "page": 1.2, "fork": 1.2, "head": 1.2},
    "growth": {"bytes": float(4 << 20)},
    "alone": {"over_us": 120.0},
    "together": {"over_us": 120.0},
    "flat": {"ratio": 1.1},
    "flat_background": {"ratio": 1.1},
    "flat_children": {"ratio": 1.1},
    "opening": {"rows": 50.0},
    "loop_sqlite": {"p99_ms": 5.0},
    "loop_lmdb": {"p99_ms": 5.0},
}


def planted(target: str, setting: Setting) -> Numbers:
    """Return numbers without running anything."""
    module, _, function = target.partition(":")
    return {"writes_per_minute": 60_000.0} if "conformance" in module else GOOD[function]


def figure(name: str) -> Figure:
    (found,) = (figure for figure in FIGURES if figure.name == name)
    return found


def measured(run: object = planted, repetitions: int = 1) -> dict[str, Measured]:
    all_of_them, _ = measure(
        FIGURES,
        TINY,
        repetitions=repetitions,
        run_case=run,  # type: ignore[arg-type]
        progress=lambda text: None,
    )
    return {one.figure.name: one for one in all_of_them}


def test_every_figure_holds_at_its_bar() -> None:
    assert all(one.holds for one in measured().values())


@pytest.mark.parametrize(
    ("function", "number", "worse", "falls"),
    [
        ("sqlite", "cpu_us", 15.1, {"sqlite.turns"}),
        ("raw_sqlite", "cpu_us", 9.9, {"sqlite.turns"}),
        ("memory", "cpu_us", 7.1, {"memory.turns"}),
        ("many", "commits_per_second", 599.0, {"sqlite.power"}),
        ("sqlite", "disk", 136.0, {"sqlite.disk"}),
        ("lmdb", "cpu_us", 22.1, {"lmdb.turns"}),
        ("raw_lmdb", "cpu_us", 9.9, {"lmdb.turns"}),
        ("lmdb_many", "commits_per_second", 599.0, {"lmdb.power"}),
        ("lmdb", "disk", 171.0, {"lmdb.disk"}),
        ("large_lmdb", "ms", 10.1, {"lmdb.open"}),
        ("large_lmdb", "bytes", float((4 << 20) + 4096), {"lmdb.growth"}),
        ("recorded_sqlite", "disk", 51.0, {"sqlite.compressed"}),
        ("recorded_lmdb", "disk", 51.0, {"lmdb.compressed"}),
        ("turns", "cpu_us", 40.1, {"jsonl.turns"}),
        ("raw", "cpu_us", 9.9, {"jsonl.turns"}),
        ("turns", "disk", 351.0, {"jsonl.disk"}),
        ("turns", "vacuumed", 131.0, {"jsonl.vacuumed"}),
        ("large", "cpu", 10.1, {"jsonl.open"}),
        ("large", "bytes", float((400 << 20) + 4096), {"jsonl.growth"}),
        ("calls", "open", 1.21, {"large.open"}),
        ("calls", "page", 1.21, {"large.page"}),
        ("calls", "fork", 1.21, {"large.fork"}),
        ("calls", "head", 1.21, {"large.head"}),
        ("growth", "bytes", float((4 << 20) + 4096), {"large.growth"}),
        ("alone", "over_us", 120.1, {"harness.task"}),
        ("together", "over_us", 120.1, {"harness.tasks"}),
        ("flat", "ratio", 1.11, {"harness.flat"}),
        ("flat_background", "ratio", 1.11, {"harness.flat.background"}),
        ("flat_children", "ratio", 1.11, {"harness.flat.children"}),
        ("opening", "rows", 51.0, {"harness.open"}),
        ("loop_sqlite", "p99_ms", 5.1, {"harness.loop.sqlite"}),
        ("loop_lmdb", "p99_ms", 5.1, {"harness.loop.lmdb"}),
    ],
)
def test_a_worse_number_makes_its_figure_fall_short(
    function: str, number: str, worse: float, falls: set[str]
) -> None:
    def run(target: str, setting: Setting) -> Numbers:
        numbers = dict(planted(target, setting))
        if target.endswith(f":{function}") and number in numbers:
            numbers[number] = worse
        return numbers

    assert {name for name, one in measured(run).items() if not one.holds} == falls


def test_the_median_of_the_repetitions_counts() -> None:
    speeds = iter((10.0, 15.0, 100.0))

    def run(target: str, setting: Setting) -> Numbers:
        if target.endswith("turns_case:sqlite"):
            return {**planted(target, setting), "cpu_us": next(speeds)}
        return planted(target, setting)

    one = measured(run, repetitions=3)["sqlite.turns"]
    assert one.values == [1.0, 1.5, 10.0]
    assert one.median == 1.5
    assert one.holds


def test_cases_are_interleaved_and_prepared_once() -> None:
    ran: list[str] = []

    def run(target: str, setting: Setting) -> Numbers:
        ran.append(target)
        return planted(target, setting)

    measured(run, repetitions=2)
    preparations = [target for target in ran if target.endswith(":make")]
    cases = [target for target in ran if not target.endswith(":make")]
    assert len(preparations) == len(set(preparations)) == 4
    assert cases[: len(cases) // 2] == cases[len(cases) // 2 :]
    assert len(set(cases)) == len(CASES)


@pytest.mark.parametrize(
    ("target", "lost"),
    [
        ("pico_bench.turns_case:sqlite", {"sqlite.turns", "sqlite.disk"}),
        (
            "pico_bench.large_case:make",
            {"large.open", "large.page", "large.fork", "large.head", "large.growth"},
        ),
    ],
)
def test_a_case_that_fails_costs_its_figures_and_no_others(target: str, lost: set[str]) -> None:
    def run(asked: str, setting: Setting) -> Numbers:
        if asked == target:
            raise CaseError("no room")
        return planted(asked, setting)

    after = measured(run)
    assert {name for name, one in after.items() if one.problem == "no room"} == lost
    assert {name for name, one in after.items() if not one.holds} == lost


@pytest.mark.parametrize("case", sorted(CASES))
def test_every_case_runs_and_gives_numbers_above_nothing(case: str, tmp_path: Path) -> None:
    setting = msgspec.structs.replace(TINY, kept=str(tmp_path))
    if CASES[case].preparation:
        run_case(CASES[case].preparation, setting)

    numbers = run_case(CASES[case].target, setting)

    assert numbers
    # Opening so small a session may find all its memory in pages that are there, and so few ticks
    # may be late by no more than their thread waited for a processor.
    perhaps_none = {"bytes", "p99_ms", "quiet_p99_ms"}
    assert all(number > 0 or name in perhaps_none for name, number in numbers.items())
    assert not any(number < 0 for number in numbers.values())
    assert not list(tmp_path.glob("case-*")), "a case leaves its folder behind"


def test_a_case_that_dies_says_its_last_words(tmp_path: Path) -> None:
    setting = msgspec.structs.replace(TINY, kept=str(tmp_path / "missing"))

    with pytest.raises(CaseError, match=r"large_case:growth: .*no store at "):
        run_case("pico_bench.large_case:growth", setting)


def test_a_large_session_is_made_once_and_is_sound(tmp_path: Path) -> None:
    make_session(str(tmp_path), 1_000)
    (file,) = tmp_path.iterdir()
    before = file.read_bytes()
    make_session(str(tmp_path), 1_000)

    assert file.read_bytes() == before
    store = open_store(session_url(str(tmp_path), 1_000), create=False)
    storage = store.open(SESSION)
    first = storage.scan_entries(EntryQuery(conversation_id=1, limit=1_000))  # type: ignore[arg-type]
    assert [entry.id for entry in first.items] == list(range(2, 1_002))
    assert not store.verify().problems
    store.close()


def test_the_large_cases_take_what_was_made(tmp_path: Path) -> None:
    setting = msgspec.structs.replace(TINY, kept=str(tmp_path))
    make(setting)

    numbers = calls(setting)

    assert {"open", "page", "head", "fork"} <= set(numbers)
    assert growth(setting)["bytes"] >= 0


def test_private_memory_grows_with_what_is_allocated() -> None:
    before = private_bytes()
    block = bytearray(b"x") * (8 << 20)
    grown = private_bytes() - before

    assert grown > 7 << 20
    assert len(block) == 8 << 20


def test_the_command_prints_a_row_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pico_bench.run.run_case", planted)

    code = cli.main(["figures", "--dir", str(tmp_path), "--reps", "3"])

    lines = capsys.readouterr().out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines[1:-1]] == [figure.name for figure in FIGURES]
    assert lines[-1] == f"{len(FIGURES)} figures measured, all hold"


def test_the_command_ends_with_1_if_a_figure_falls_short(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GOOD, "memory", {"cpu_us": 99.0})
    monkeypatch.setattr("pico_bench.run.run_case", planted)

    code = cli.main(
        ["figures", "--dir", str(tmp_path), "--only", "memory", "--only", "sqlite.disk"]
    )

    out = capsys.readouterr().out
    assert code == 1
    assert "SHORT" in out
    assert out.endswith("1 figure of 2 fell short\n")


def test_the_command_says_what_could_not_be_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(target: str, setting: Setting) -> Numbers:
        raise CaseError(f"{target}: no room")

    monkeypatch.setattr("pico_bench.run.run_case", run)

    code = cli.main(["figures", "--dir", str(tmp_path), "--only", "disk"])

    assert code == 1
    assert "sqlite.disk was not measured: pico_bench.turns_case:sqlite: no room" in (
        capsys.readouterr().out
    )


def test_fewer_turns_or_entries_than_promised_are_called_a_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pico_bench.run.run_case", planted)

    cli.main(["figures", "--dir", str(tmp_path), "--turns", "7", "--entries", "9"])

    out = capsys.readouterr().out
    assert "a trial: 7 turns; the figures are promised for 2,000" in out
    assert "a trial: 9 entries; the figures are promised for 1,000,000" in out


def test_the_json_holds_figures_cases_and_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pico_bench.run.run_case", planted)
    file = tmp_path / "figures.json"

    cli.main(["figures", "--dir", str(tmp_path), "--json", str(file), "--only", "sqlite.turns"])

    report = json.loads(file.read_bytes())
    assert report["figures"][0]["measured"] == 1.5
    assert report["figures"][0]["holds"] is True
    assert len(report["cases"]["sqlite"]) == 5
    assert report["machine"]["cores"]
    assert capsys.readouterr().out.startswith("figure")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--only", "xyzzy"], "figures: no figure 'xyzzy'; there are: sqlite.turns, memory.turns"),
        (["--reps", "0"], "argument --reps: '0'; allowed: a whole number, 1 or more"),
        (["stray"], "figures: 'stray' is one argument too many"),
    ],
)
def test_wrong_usage_is_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.main(["figures", *arguments])

    err = capsys.readouterr().err
    assert code == cli.USAGE
    assert problem in err
    assert err.count("\n") == 1


def test_every_figure_of_the_reference_is_there() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "figures.md").read_text()

    for one in FIGURES:
        assert f"`{one.name}`" in page
        assert figure(one.name) is one
