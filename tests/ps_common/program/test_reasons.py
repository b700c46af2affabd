"""What a program says of its end: heard whole or not at all, with the place in the user's own code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ps_common.program.reasons import LAUNCHED, Reason, last_reason_in, reason_of
from tests.rows import row


def test_the_last_whole_reason_counts() -> None:
    for lines, reason in [
        (b"", None),
        (b'{"how":"left","text":"done"}', None),  # its end is missing
        (b'{"how":"left","text":"done"}\n', Reason("left", "done")),
        (b'{"how":"hangs","text":"a"}\n{"how":"over","text":"b"}\n', Reason("over", "b")),
        (b'{"how":"left","text":"done"}\n{"how":"fail', Reason("left", "done")),
        (
            b'{"how":"left","text":"done"}\nnot of ours\n{"how":"otherwise","text":""}\n[]\n\xff\n',
            Reason("left", "done"),
        ),
    ]:
        with row(lines, reason):
            assert last_reason_in(lines) == reason


def raised(code: str, tmp_path: Path) -> BaseException:
    """What a user's file raises."""
    path = tmp_path / "track.py"
    path.write_text(code)
    try:
        exec(compile(code, str(path), "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError("it raises nothing")


def test_an_error_is_one_line_with_its_place_in_the_users_code(tmp_path_factory: pytest.TempPathFactory) -> None:
    for code, reason in [
        ("\nraise ValueError('no file')", "ValueError: no file (track.py, line 2)"),
        ("import sys\nsys.exit()", "sys.exit() was called (track.py, line 2)"),
        ("import sys\nsys.exit(3)", "sys.exit(3) was called (track.py, line 2)"),
        ("raise SystemExit('no licence')", "sys.exit('no licence') was called (track.py, line 1)"),
        ("import json\n\njson.loads('')", r"line 1 column 1 (char 0) (track.py, line 3)"),  # raised in a library
        (
            "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise OSError('far') from error",
            "OSError: far (track.py, line 2)",  # where it began
        ),
    ]:
        with row(code, reason):
            tmp_path = tmp_path_factory.mktemp("row")
            assert reason_of(raised(code, tmp_path)).endswith(reason)


def test_a_program_whose_parent_died_while_it_started_does_not_begin() -> None:
    source = "from ps_common.program.reasons import answer_to_parent\nanswer_to_parent()\nprint('begun')"
    variables = os.environ | {LAUNCHED: "1 0"}  # no parent of a test is process 1
    ended = subprocess.run([sys.executable, "-c", source], env=variables, capture_output=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
