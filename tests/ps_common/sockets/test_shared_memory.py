"""Segments: they open by their secret alone, cannot be shortened, and leave nothing behind."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ps_common.errors import WireError
from ps_common.sockets import shared_memory
from ps_common.sockets.shared_memory import LABEL, PAGE_BYTES, SECRET_BYTES, Segment
from tests.rows import row
from tests.segments import open_here

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")

NO_SECRET = "0" * SECRET_BYTES


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment.make()
    yield made
    made.close()


def named(descriptor: int, secret: str = NO_SECRET, pid: int | None = None) -> str:
    return f"ps-rl-{pid or os.getpid()}-{descriptor}-{secret}"


def memory_file(content: bytes, *seals: int, label: str = LABEL) -> int:
    descriptor = os.memfd_create(label, os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    for seal in seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seal)
    return descriptor


def test_both_sides_see_the_same_bytes(segment: Segment) -> None:
    segment.reserve(2 * PAGE_BYTES)
    other = Segment.open(segment.name)
    assert (other.proof, other.identity) == (segment.proof, segment.identity)
    segment.part(PAGE_BYTES, 100)[:] = 7
    assert other.part(PAGE_BYTES, 100).tolist() == [7] * 100
    other.part(PAGE_BYTES + 64, 36)[:] = 9
    assert segment.part(PAGE_BYTES, 100).tolist() == [7] * 64 + [9] * 36
    other.close()


def test_bytes_reserved_later_are_mapped_where_the_segment_is_open(segment: Segment) -> None:
    other = Segment.open(segment.name)
    with pytest.raises(WireError, match="beyond the 4096 bytes of the segment"):
        other.part(PAGE_BYTES, 64)
    segment.reserve(PAGE_BYTES)
    segment.part(PAGE_BYTES, 4)[:] = 5
    assert other.part(PAGE_BYTES, 4).tolist() == [5] * 4
    other.close()


def test_nobody_can_cut_it_off(segment: Segment) -> None:
    """A process that still read there would get SIGBUS."""
    segment.reserve(PAGE_BYTES)
    other = Segment.open(segment.name)
    for one in (segment, other):
        for size in (0, PAGE_BYTES, 2 * PAGE_BYTES - 1):
            with pytest.raises(PermissionError):
                os.ftruncate(one._descriptor, size)
        with pytest.raises(PermissionError):
            fcntl.fcntl(one._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    with pytest.raises(PermissionError):
        os.truncate(f"/proc/self/fd/{segment._descriptor}", 0)
    assert other.part(PAGE_BYTES, 4).tolist() == [0] * 4
    other.close()


@pytest.mark.parametrize(
    ("at", "size"), [(0, 64), (64, 64), (PAGE_BYTES + 4, 64), (PAGE_BYTES, PAGE_BYTES + 1), (2**40, 2**40)]
)
def test_a_place_outside_the_slots_is_refused(segment: Segment, at: int, size: int) -> None:
    segment.reserve(PAGE_BYTES)
    with pytest.raises(WireError):
        segment.part(at, size)


def test_a_text_that_is_no_name_opens_no_segment() -> None:
    for wrong in [
        "",
        "../etc/passwd",
        "ps-rl-1-1",
        f"ps-rl-0-1-{NO_SECRET}",
        f"ps-rl-1-../../1-{NO_SECRET}",
        f"ps-rl-1-1-{NO_SECRET}\n",
        f"PS-RL-1-1-{NO_SECRET}",
        f"xps-rl-1-1-{NO_SECRET}",
        f"ps-rl-1-1-{NO_SECRET[:-1]}g",
    ]:
        with row(wrong), pytest.raises(OSError, match="not the name of a segment"):
            Segment.open(wrong)


def test_a_segment_is_not_opened_without_its_secret(segment: Segment) -> None:
    """Process and descriptor can be guessed, by anybody who may send a HELLO."""
    before = open_here()
    for secret in (NO_SECRET, segment.proof):
        with pytest.raises(OSError, match="is another segment"):
            Segment.open(named(segment._descriptor, secret))
    assert open_here() == before


def test_a_file_that_is_no_segment_is_not_opened(tmp_path: Path) -> None:
    """Of some files even to open them does something."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    head = NO_SECRET.encode() * 2
    descriptors = [
        os.open(pipe, os.O_RDWR),
        os.open(tmp_path, os.O_RDONLY),
        os.open("/dev/null", os.O_RDWR),
        memory_file(head, fcntl.F_SEAL_SHRINK, label="of somebody else"),
        memory_file(head),  # not sealed
        memory_file(head, fcntl.F_SEAL_GROW),
        memory_file(head[:-1], fcntl.F_SEAL_SHRINK),
    ]
    for descriptor in descriptors:
        with pytest.raises(OSError):
            Segment.open(named(descriptor))
        os.close(descriptor)
    for name in (named(descriptors[0]), named(0, pid=2**31 - 1)):
        with pytest.raises(FileNotFoundError):
            Segment.open(name)


def test_it_lives_until_the_last_array_of_it_is_gone() -> None:
    before = open_here()
    segment = Segment.make()
    segment.reserve(PAGE_BYTES)
    other = Segment.open(segment.name)
    array = other.part(PAGE_BYTES, 4)
    other.close()
    array[:] = 3
    assert segment.part(PAGE_BYTES, 4).tolist() == [3] * 4
    del array
    segment.close()
    assert open_here() == before


def test_a_killed_process_leaves_only_what_others_have_open() -> None:
    program = (
        "import sys; from ps_common.sockets.shared_memory import Segment; made = Segment.make(); made.reserve(4096); "
        "made.part(4096, 4)[:] = 8; print(made.name, flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **pipes) as process:  # type: ignore[call-overload]
        name = process.stdout.readline().strip()
        segment = Segment.open(name)
        process.kill()
    assert np.all(segment.part(PAGE_BYTES, 4) == 8)
    with pytest.raises(OSError):
        Segment.open(name)
    segment.close()
    assert open_here() == 0


def test_without_proc_there_are_no_segments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shared_memory, "FOLDER", str(tmp_path / "none"))
    with pytest.raises(FileNotFoundError):
        Segment.make()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_opened(segment: Segment) -> None:
    os.fchown(segment._descriptor, 65534, 65534)
    with pytest.raises(OSError, match="not a file of this user"):
        Segment.open(segment.name)
