"""Output that cannot be written ends no program."""

import logging
import os
import subprocess
import sys
from typing import TextIO, cast

import pytest

from ps_common.program.output import BackgroundLog, LenientStream, lenient_output, reader_has_left


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


def test_output_that_cannot_be_written_is_dropped() -> None:
    stream = LenientStream(cast(TextIO, Broken(FULL_DISK)))
    assert stream.write("lost") == 4
    stream.flush()
    stream.writelines(["a", "b"])
    assert stream.error == FULL_DISK
    assert stream.encoding == "utf-8", "all else is the stream's own"


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


def test_nobody_waits_for_a_reader_of_the_log_that_has_stopped() -> None:
    """A pipe takes 64 KiB."""
    readable, writable = os.pipe()
    handler = BackgroundLog(writable)
    with os.fdopen(readable, "rb") as reader:
        for number in range(2_000):
            handler.handle(logging.makeLogRecord({"msg": f"{number:999d}"}))
        first = [reader.readline() for _ in range(1_000)]
        assert first == [f"{number:999d}\n".encode() for number in range(1_000)]
    handler.handle(logging.makeLogRecord({"msg": "nobody reads this"}))
    handler.flush()
    os.close(writable)


LOGS = """
import logging, sys
from ps_common.program.output import lenient_output, log_as

with lenient_output("oven"):
    log_as("oven")
    for number in range(3000):
        logging.info("wörd %d %s", number, "x" * 1000)
sys.exit(3)
"""


@pytest.mark.parametrize("where", ["/dev/full", "a pipe that nobody reads", "a pipe whose reader has stopped"])
def test_a_program_ends_though_its_log_cannot_be_written(where: str) -> None:
    readable, output = os.pipe()
    if where == "/dev/full":
        os.close(output)
        output = os.open(where, os.O_WRONLY)
    if "stopped" not in where:
        os.close(readable)
    with subprocess.Popen([sys.executable, "-c", LOGS], stderr=output) as program:
        assert program.wait(30) == 3
    os.close(output)


@pytest.mark.parametrize("where", ["/dev/full", "a pipe that nobody reads"])
def test_a_program_goes_on_without_its_output(where: str) -> None:
    if where == "/dev/full":
        output = os.open(where, os.O_WRONLY)
    else:
        readable, output = os.pipe()
        os.close(readable)
    prints = LOGS.replace("logging.info(", "print(")
    program = subprocess.run([sys.executable, "-c", prints], stdout=output, stderr=subprocess.PIPE, check=False)
    os.close(output)
    told = b"oven: some of the output is lost: No space left on device\n" if where == "/dev/full" else b""
    assert (program.returncode, program.stderr) == (3, told)
