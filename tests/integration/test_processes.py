"""Programs that a test starts: what it reads of them, and that they end with it."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.integration.processes import Programs

STARTS_ONE = """
import signal, sys
from pathlib import Path
from tests.integration.processes import programs_in

with programs_in(Path(sys.argv[1])) as programs:
    print(programs.start("json.tool").process.pid, flush=True)  # waits for its standard input to end
    signal.pause()
"""


def test_a_line_is_read_once_it_is_whole(programs: Programs) -> None:
    program = programs.start("json.tool", "--help")
    assert program.wait() == 0
    printed = program.output
    assert printed.startswith("usage: ")
    with program.log.open("a") as log:
        log.write("pushed -12")
        log.flush()
        assert program.output == printed
        log.write("3\n")
    assert program.output == printed + "pushed -123\n"


@pytest.mark.nightly
def test_who_is_asked_to_end_ends_what_it_has_started(tmp_path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([sys.executable, "-c", STARTS_ONE, str(tmp_path)], **pipes, text=True) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        assert child.is_running()
        parent.terminate()
        assert parent.wait(60) != 0
        assert not child.is_running()
