"""Every benchmark runs: what is measured only now and then would rot unseen."""

from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "asv_bench" / "benchmarks"


def benchmarks() -> Iterator[tuple[type, str]]:
    """Yield each class with the name of each of its benchmarks."""
    for path in sorted(FOLDER.glob("[a-z]*.py")):
        spec = spec_from_file_location(f"benchmark_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__:
                for name in vars(value):
                    if name.startswith(("time_", "track_")):
                        yield value, name


@pytest.mark.parametrize(("kind", "name"), list(benchmarks()))
def test_a_benchmark_runs(kind: type, name: str) -> None:
    for parameter in getattr(kind, "params", [None]):
        arguments = [] if parameter is None else [parameter]
        one = kind()
        if hasattr(one, "setup"):
            one.setup(*arguments)
        result = getattr(one, name)(*arguments)
        if hasattr(one, "teardown"):
            one.teardown(*arguments)

        assert result is None if name.startswith("time_") else result > 0


def test_there_are_benchmarks() -> None:
    assert len(list(benchmarks())) >= 8
