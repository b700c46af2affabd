"""Output that cannot be written ends no program."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TextIO, cast

import pytest

from ps_common.program import output as program_output
from ps_common.program.output import LenientStream, lenient_output, never_wait_for_output, reader_has_left


class Broken:
    """A stream that takes nothing."""

    encoding = "utf-8"

    def __init__(self, error: OSError) -> None:
        self._error = error

    def write(self, text: str) -> int:
        raise self._error

    def flush(self) -> None:
        raise self._error


FULL_DISK = OSError(28, "No space left on device")
READER_HAS_LEFT = BrokenPipeError(32, "Broken pipe")


def test_output_that_cannot_be_written_is_dropped_and_counted() -> None:
    stream = LenientStream(cast(TextIO, Broken(FULL_DISK)))
    assert stream.write("lost") == 4
    stream.flush()
    stream.writelines(["a", "b"])
    assert stream.dropped == 4
    assert stream.encoding == "utf-8", "all else is the stream's own"


def test_a_full_disk_is_reported_at_the_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(FULL_DISK))
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    with lenient_output("oven"):
        print("hot")
    assert capsys.readouterr().err == "oven: some of the output is lost: No space left on device\n"


def test_a_reader_that_has_left_is_not_reported_and_a_program_that_only_prints_can_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(READER_HAS_LEFT))
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    with lenient_output("oven"):
        assert not reader_has_left()
        print("hot")
        assert reader_has_left()
    assert capsys.readouterr().err == ""


def test_nobody_waits_for_a_reader_that_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe takes 64 KiB; a program that serves others wrote the next line when somebody read the first."""
    readable, writable = os.pipe()
    with os.fdopen(writable, "w") as pipe, os.fdopen(readable, "rb") as reader:
        monkeypatch.setattr(program_output, "MOST_WAITING_CHARACTERS", 500_000)
        stream = LenientStream(pipe)
        stream.never_wait()
        for number in range(1000):
            assert stream.write(f"{number:999d}\n") == 1000
        assert 400 < stream.dropped < 600, "half of the text waits, and 64 KiB are in the pipe"
        assert isinstance(stream.error, TimeoutError)
        stream.wait(within_seconds=0.01)
        stream.write("dropped\n")
        first = [reader.readline() for _ in range(400)]
        assert first == [f"{number:999d}\n".encode() for number in range(400)]


def test_background_output_arrives_in_order_before_the_program_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        with lenient_output("oven"):
            print("before")
            never_wait_for_output()
            for number in range(100):
                print("wörd", number)
            print("no end of line", end="")
        print("after")
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines == ["before", *(f"wörd {number}" for number in range(100)), "no end of lineafter"]
    assert (tmp_path / "err").read_text() == ""


PRINTS_INTO_A_STOPPED_PIPE = """
import sys
from ps_common.program.output import lenient_output, never_wait_for_output

with lenient_output("oven"):
    never_wait_for_output()
    for number in range(1000):
        print("x" * 1000)
sys.exit(3)
"""


def test_a_program_whose_reader_has_stopped_ends_all_the_same() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PRINTS_INTO_A_STOPPED_PIPE], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stderr is not None
        assert program.wait(30) == 3, "nobody has read a word"
        assert program.stderr.read() == b"oven: some of the output is lost: its reader does not take it\n"


@pytest.mark.parametrize("where", ["/dev/full", "a pipe that nobody reads"])
def test_a_program_in_the_background_goes_on_without_its_output(where: str) -> None:
    if where == "/dev/full":
        output = os.open(where, os.O_WRONLY)
    else:
        readable, output = os.pipe()
        os.close(readable)
    program = subprocess.run(
        [sys.executable, "-c", PRINTS_INTO_A_STOPPED_PIPE],
        stdout=output,
        stderr=subprocess.PIPE,
        timeout=30,
        check=False,
    )
    os.close(output)
    told = b"oven: some of the output is lost: No space left on device\n" if where == "/dev/full" else b""
    assert (program.returncode, program.stderr) == (3, told)
