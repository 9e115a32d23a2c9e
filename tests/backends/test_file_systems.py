"""Which file systems a store may be on: one list and one look for every backend."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pico_store.backends import open_store
from pico_store.errors import StoreUnusableError
from pico_store.file_system import UNSHARED, file_system

REAL = Path.read_bytes


def _mount(monkeypatch: pytest.MonkeyPatch, *mounts: tuple[bytes, str]) -> None:
    """Let the system list mounts, each a place, as the system writes it, and a type."""
    lines = [b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw\n"]
    lines += [b"23 22 0:21 / %s rw - %s host:/x rw\n" % (at, kind.encode()) for at, kind in mounts]

    def read_bytes(self: Path) -> bytes:
        return b"".join(lines) if str(self) == "/proc/self/mountinfo" else REAL(self)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)


@pytest.mark.parametrize("kind", sorted(UNSHARED))
@pytest.mark.parametrize("scheme", ["jsonl", "lmdb", "sqlite"])
def test_a_network_file_system_is_refused(
    scheme: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _mount(monkeypatch, (os.fsencode(tmp_path), kind))

    with pytest.raises(StoreUnusableError, match=f"on a {kind} file system.*local disk"):
        open_store(f"{scheme}:{tmp_path}/a")

    assert list(tmp_path.iterdir()) == []


def test_the_types_that_people_use_are_known() -> None:
    assert {"nfs", "nfs4", "virtiofs", "9p", "cifs", "lustre", "glusterfs", "ceph"} <= UNSHARED


@pytest.mark.parametrize("scheme", ["jsonl", "lmdb", "sqlite"])
def test_a_local_file_system_is_taken(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _mount(monkeypatch, (os.fsencode(tmp_path), "xfs"))

    open_store(f"{scheme}:{tmp_path}/a").close()

    assert len(list(tmp_path.iterdir())) >= 1


def test_the_file_system_of_a_path_is_that_of_its_nearest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = os.fsencode(tmp_path)
    _mount(
        monkeypatch,
        (here + b"/share", "nfs4"),
        (here + b"/with\\040blank", "virtiofs"),
        (here + b"/sharehold", "tmpfs"),
        (here + b"/twice", "cifs"),
        (here + b"/twice", "xfs"),
    )
    os.symlink(tmp_path / "share", tmp_path / "link")

    for name, kind in (
        ("a.db", "ext4"),
        ("share/a.db", "nfs4"),
        ("share/deep/a.db", "nfs4"),
        ("link/a.db", "nfs4"),
        ("with blank/a.db", "virtiofs"),
        ("sharehold/a.db", "tmpfs"),
        ("twice/a.db", "xfs"),
    ):
        assert file_system(str(tmp_path / name)) == kind


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("b\u00fcro".encode(), "b\u00fcro"),
        ("ls\u2028nel\u0085ff\f".encode(), "ls\u2028nel\u0085ff\f"),
        ("nb\u00a0sp".encode(), "nb\u00a0sp"),
        (b"tab\\011nl\\012", "tab\tnl\n"),
        (b"back\\134040", "back\\040"),
        (b"\xff\xfe", os.fsdecode(b"\xff\xfe")),
    ],
)
def test_a_mount_point_of_any_bytes_is_told(
    written: bytes, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text would be split where Python sees the end of a line, or not be text at all."""
    _mount(monkeypatch, (os.fsencode(tmp_path) + b"/" + written, "nfs4"))

    assert file_system(str(tmp_path / name / "a.db")) == "nfs4"
    assert file_system(str(tmp_path / "elsewhere")) == "ext4"
