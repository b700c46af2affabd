"""Segments: who may open them, that they are reserved, and that nothing of them stays."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from common import shared_memory
from common.errors import WireError
from common.shared_memory import PAGE_BYTES, Segment, sweep
from tests.descriptors import none_left

pytestmark = pytest.mark.skipif(not os.path.isdir(shared_memory.FOLDER), reason="there is no /dev/shm")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of /dev/shm."""
    monkeypatch.setattr(shared_memory, "FOLDER", str(tmp_path))
    return tmp_path


@pytest.fixture
def segment(folder: Path) -> Iterator[Segment]:
    made = Segment.make()
    yield made
    made.close()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def mappings() -> int:
    return Path("/proc/self/maps").read_text().count("ps-rl-")


def test_both_sides_see_the_same_bytes(segment: Segment) -> None:
    segment.reserve(2 * PAGE_BYTES)
    other = Segment.open(segment.name)
    assert (other.proof, other.identity) == (segment.proof, segment.identity)
    segment.part(PAGE_BYTES, 100)[:] = 7
    assert other.part(PAGE_BYTES, 100).tolist() == [7] * 100
    other.part(PAGE_BYTES + 64, 36)[:] = 9
    assert segment.part(PAGE_BYTES, 100).tolist() == [7] * 64 + [9] * 36
    other.close()


def test_room_that_is_reserved_later_is_seen_by_who_opened_it_before(segment: Segment) -> None:
    other = Segment.open(segment.name)
    segment.remove_name()
    with pytest.raises(WireError, match="of 4096 bytes of shared memory"):
        other.part(PAGE_BYTES, 64)
    segment.reserve(PAGE_BYTES)
    segment.part(PAGE_BYTES, 4)[:] = 5
    assert other.part(PAGE_BYTES, 4).tolist() == [5] * 4
    other.close()


def test_room_that_is_not_reserved_is_not_believed(segment: Segment, folder: Path) -> None:
    os.truncate(folder / segment.name, 2**20)
    with pytest.raises(WireError, match="of 4096 bytes of shared memory"):
        segment.part(PAGE_BYTES, 64)


@pytest.mark.parametrize(
    ("at", "size"), [(0, 64), (64, 64), (PAGE_BYTES + 4, 64), (PAGE_BYTES, PAGE_BYTES + 1), (2**40, 2**40)]
)
def test_a_place_outside_the_slots_is_refused(segment: Segment, at: int, size: int) -> None:
    segment.reserve(PAGE_BYTES)
    with pytest.raises(WireError):
        segment.part(at, size)


def test_only_its_user_may_open_the_file(segment: Segment, folder: Path) -> None:
    assert stat.S_IMODE((folder / segment.name).stat().st_mode) == 0o600


def test_what_is_not_a_segment_of_this_user_is_not_opened(folder: Path, segment: Segment) -> None:
    name = "ps-rl-" + 32 * "0"
    path = folder / name
    for make in (
        lambda: path.symlink_to(folder / segment.name),
        lambda: os.mkfifo(path),
        lambda: path.mkdir(),
        lambda: path.write_bytes(b"short"),
        lambda: path.write_bytes(b"x" * PAGE_BYTES),  # others may read it
    ):
        make()
        with pytest.raises(OSError):
            Segment.open(name)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for wrong in (
        "",
        "../etc/passwd",
        "ps-rl-" + 31 * "0",
        "ps-rl-" + 32 * "0" + "\n",
        "PS-RL-" + 32 * "0",
        "x" + name,
    ):
        with pytest.raises(OSError, match="no name of a segment"):
            Segment.open(wrong)
    with pytest.raises(FileNotFoundError):
        Segment.open(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_opened(segment: Segment, folder: Path) -> None:
    os.chown(folder / segment.name, 65534, 65534)
    with pytest.raises(OSError, match="not a file of this user alone"):
        Segment.open(segment.name)
    sweep()
    assert (folder / segment.name).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_full_file_system_is_an_error_when_room_is_reserved(folder: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(folder)], check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        segment = Segment.make()
        with pytest.raises(OSError, match="No space left"):
            segment.reserve(2**20)
        segment.close()
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_segment_without_its_name_lives_until_the_last_array_of_it_is_gone(segment: Segment, folder: Path) -> None:
    before = (descriptors(), mappings())
    segment.reserve(PAGE_BYTES)
    other = Segment.open(segment.name)
    array = other.part(PAGE_BYTES, 4)
    segment.remove_name()
    assert list(folder.iterdir()) == []
    other.close()
    array[:] = 3
    assert segment.part(PAGE_BYTES, 4).tolist() == [3] * 4
    del array
    segment._bytes = np.empty(0, dtype=np.uint8)
    assert (descriptors(), mappings()) == before


def test_names_of_the_living_stay_and_names_of_the_killed_go(folder: Path, segment: Segment) -> None:
    program = (
        "import os, signal; from common import shared_memory; "
        f"shared_memory.FOLDER = {str(folder)!r}; shared_memory.Segment.make(); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode < 0
    (folder / "of somebody else").write_text("")
    assert len(list(folder.iterdir())) == 3
    sweep()
    assert {path.name for path in folder.iterdir()} == {segment.name, "of somebody else"}


def test_without_dev_shm_there_are_no_segments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_memory, "FOLDER", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        Segment.make()
    sweep()


def test_a_folder_that_cannot_be_listed_is_swept_later(folder: Path) -> None:
    """A server sweeps every few seconds, also when connections have taken every descriptor."""
    left = folder / f"ps-rl-{32 * '0'}"
    left.touch(mode=0o600)
    with none_left():
        sweep()
    assert left.exists()
    sweep()
    assert not left.exists()
