"""What a wheel of this repository installs."""

import zipfile
from pathlib import Path

import pytest

from tests.packaging.repository import ROOT, packages, run_tool


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = run_tool(
        "python", "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), cwd=ROOT
    )
    assert build.returncode == 0, f"the wheel does not build:\n{build.stdout}"
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def test_only_pico_names_are_installed(names: list[str]) -> None:
    expected = {package.name for package in packages()}

    installed = {name.split("/")[0] for name in names}
    (metadata,) = (name for name in installed if name.endswith(".dist-info"))

    assert metadata.startswith("pico_store-")
    assert installed - {metadata} == expected, (
        "the wheel's packages are not those of pyproject.toml"
    )
    assert all(name.startswith("pico_") for name in installed), f"not pico's: {sorted(installed)}"


def test_check_wheel_contents_finds_nothing(wheel: Path) -> None:
    check = run_tool("check-wheel-contents", str(wheel), cwd=ROOT)

    assert check.returncode == 0, check.stdout


def test_every_package_says_that_it_is_typed(names: list[str]) -> None:
    missing = [p.name for p in packages() if f"{p.name}/py.typed" not in names]

    assert not missing, f"without py.typed, and so untyped for whoever installs them: {missing}"


def test_every_module_of_the_packages_is_installed(names: list[str]) -> None:
    modules = {
        (package.name / module.relative_to(ROOT / package)).as_posix()
        for package in packages()
        for module in (ROOT / package).rglob("*.py")
    }

    assert modules <= set(names), f"not in the wheel: {sorted(modules - set(names))}"


def test_the_specification_is_installed_with_the_contract(names: list[str]) -> None:
    assert "pico_store/SPEC.md" in names


def test_the_licence_is_installed(names: list[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
