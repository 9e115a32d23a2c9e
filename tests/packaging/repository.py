"""Where the repository is, which packages it installs, and how its tools are run."""

import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def tool_options(*keys: str) -> dict[str, Any]:
    """Return a table of pyproject.toml, named by the keys that lead to it below ``tool``."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["tool"]
    for key in keys:
        table = table[key]
    return dict(table)


def packages() -> list[Path]:
    """Return the folders of the packages that the wheel is made of, relative to the root."""
    wheel = tool_options("hatch", "build", "targets", "wheel")
    return [Path(name) for name in wheel["packages"]]


def run_tool(
    name: str, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a tool of this environment and return how it ended; both outputs are in ``stdout``."""
    tool = Path(sysconfig.get_path("scripts")) / name
    command = [sys.executable] if name == "python" else [str(tool)]
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        env=env,
        input=stdin,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
