"""Output that nobody can read ends no program."""

import sys
from typing import TextIO, cast

import pytest

from common.program_output import LenientStream, lenient_output


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


def test_what_cannot_be_written_is_dropped_and_counted() -> None:
    stream = LenientStream(cast(TextIO, Broken(FULL_DISK)))
    assert stream.write("lost") == 4
    stream.flush()
    stream.writelines(["a", "b"])
    assert stream.dropped == 4
    assert stream.encoding == "utf-8", "all else is the stream's own"


def test_a_full_disk_is_told_at_the_end(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(FULL_DISK))
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    with lenient_output("oven"):
        print("hot")
    assert capsys.readouterr().err == "oven: some of the output is lost: No space left on device\n"


def test_a_reader_that_has_left_is_not_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", Broken(READER_HAS_LEFT))
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    with lenient_output("oven"):
        print("hot")
    assert capsys.readouterr().err == ""


def test_a_program_without_standard_output_has_none_to_lose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with lenient_output("oven"):
        print("nowhere")
