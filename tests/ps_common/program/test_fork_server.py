"""Programs as forks of the fork server: as if they had been started anew, and children of the one that starts them."""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from tests.ps_client.loopback_server import wait_until

ROOT = Path(__file__).parents[3]
# It says what it finds, and leaves.
CHILD = """
import json, os, random, sys
import heavy
from ps_common.program.reasons import answer_to_parent, report_reason

answer_to_parent()
found = {"argv": sys.argv[1:], "imported_in": heavy.pid, "pid": os.getpid(), "parent": os.getppid(), "main": __name__}
found |= {"session": os.getsid(0), "input": sys.stdin.read()}
found["draw"] = [random.random(), *(draw() for draw in heavy.draws)]
found |= {"variables": dict(os.environ), "path": sys.path, "spec": __spec__.name}
found |= {"name": open("/proc/self/comm").read(), "descriptors": len(os.listdir("/proc/self/fd"))}
print(json.dumps(found), "2 × 3")
print("an error", file=sys.stderr)
report_reason("over", "all is said")
"""
PARENT = """
import os, signal, sys, time
from pathlib import Path
from ps_common.program.child_processes import Child, PipedChild
from ps_common.program import fork_server

fork_server.begin_fork_server({"says": ["heavy"]}, here=os.getcwd())
SCRIPT
"""
SAYS = """
for number in (1, 2):
    child = Child("says", ["a b", str(number)], Path(f"{number}.log"), {"FURTHER": "ü"})
    assert child.wait(within_seconds=30) and child.has_done_its_work
    assert child.reason.text == "all is said"
    if number == 2 and "kill" in sys.argv:
        os.kill(fork_server._servers[0]._process.pid, signal.SIGKILL)
lines = []
piped = PipedChild("says", ["3"], lines.append)
piped.wait(within_seconds=30)
piped.read_rest(within_seconds=30)
Path("3.log").write_text("\\n".join(lines))
failing = Child("fails", [], Path("fails.log"))
assert failing.wait(within_seconds=30)
assert (failing.exit_status, failing.has_died) == (3, True)
sleeping = Child("sleeps", [], Path("sleeps.log"))
sleeping.kill()
assert sleeping.wait(within_seconds=30) and sleeping.cause_of_death() == "killed by SIGKILL"
"""
STAYS = """
child = Child("sleeps", [], Path("sleeps.log"))
print(fork_server._servers[0]._process.pid, child.pid, flush=True)
signal.pause()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "heavy.py").write_text("import os\npid, draws = os.getpid(), []\n")
    (tmp_path / "says.py").write_text(CHILD)
    (tmp_path / "fails.py").write_text("import sys\nsys.exit(3)\n")
    (tmp_path / "sleeps.py").write_text(
        "import signal\nfrom ps_common.program.reasons import answer_to_parent\nanswer_to_parent()\nsignal.pause()\n"
    )
    return tmp_path


def started(folder: Path, script: str, *arguments: str) -> "subprocess.Popen[str]":
    (folder / "parent.py").write_text(PARENT.replace("SCRIPT", script))
    variables = os.environ | {"PYTHONPATH": f"{folder}:{ROOT}:{ROOT / 'common'}", "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-P", str(folder / "parent.py"), *arguments]
    return subprocess.Popen(command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True)


def none_runs(processes: list[psutil.Process]) -> bool:
    return not any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in processes)


def said(folder: Path, number: int) -> dict[str, Any]:
    line, error = (folder / f"{number}.log").read_text(encoding="utf-8").splitlines()
    found, end = json.JSONDecoder().raw_decode(line)
    assert (line[end:], error) == (" 2 × 3", "an error")
    return dict(found)


@pytest.mark.skipif(sys.platform != "linux", reason="adopts its forks as Linux allows")
def test_a_fork_is_as_a_program_that_was_started_anew(folder: Path) -> None:
    with (folder / "heavy.py").open("a") as heavy:
        heavy.write("import numpy, torch\ndraws = [numpy.random.rand, lambda: torch.rand(()).item()]\n")
    parent = started(folder, SAYS, "kill")
    assert parent.communicate(timeout=60) == ("", None)
    assert parent.returncode == 0
    forks, anew = [said(folder, number) for number in (1, 2)], said(folder, 3)
    assert forks[0]["imported_in"] == forks[1]["imported_in"] not in (forks[0]["pid"], forks[1]["pid"], parent.pid)
    assert anew["imported_in"] == anew["pid"], "the fork server had been killed"
    for one, argv in ((forks[0], ["a b", "1"]), (forks[1], ["a b", "2"]), (anew, ["3"])):
        assert (one["argv"], one["parent"], one["main"], one["session"]) == (argv, parent.pid, "__main__", one["pid"])
    for same in ("path", "spec", "input"):
        assert forks[0][same] == forks[1][same] == anew[same], same
    varies = {"FURTHER", "LC_CTYPE"}
    for fork in forks:
        assert fork["variables"]["FURTHER"] == "ü"
        assert {**fork["variables"], **dict.fromkeys(varies)} == {**anew["variables"], **dict.fromkeys(varies)}
        assert fork["name"] == "says\n"
        assert fork["descriptors"] <= anew["descriptors"] + 1, "no socket, and none of other children"
    draws = [draw for one in forks for draw in one["draw"]]
    assert len(set(draws)) == len(draws), "forks draw other numbers"


@pytest.mark.skipif(sys.platform != "linux", reason="adopts its forks as Linux allows")
def test_no_process_outlives_the_one_that_has_begun_it(folder: Path) -> None:
    for number in (signal.SIGKILL, signal.SIGINT):
        parent = started(folder, STAYS)
        assert parent.stdout is not None
        family = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert [one.ppid() for one in family] == [parent.pid] * 2
        parent.send_signal(number)
        assert parent.wait(30) != 0
        parent.stdout.close()
        wait_until(partial(none_runs, family), "they end")


@pytest.mark.skipif(sys.platform != "linux", reason="adopts its forks as Linux allows")
def test_a_launcher_that_ignores_the_end_of_its_children_does_not_end_the_fork_server(folder: Path) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        parent = started(folder, SAYS)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert parent.communicate(timeout=60) == ("", None)
    assert parent.returncode == 0
    assert said(folder, 1)["imported_in"] == said(folder, 2)["imported_in"], "the fork server made both"


@pytest.mark.skipif(sys.platform != "linux", reason="adopts its forks as Linux allows")
def test_a_program_is_started_anew_where_there_is_no_process_left_for_a_fork(folder: Path) -> None:
    heavy = (folder / "heavy.py").read_text()
    refuses = """
fork, server = os.fork, os.getpid()
def second_fails():
    if os.getpid() != server:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return fork()
os.fork = second_fails
"""
    (folder / "heavy.py").write_text(heavy + refuses)
    assert started(folder, SAYS).communicate(timeout=60) == ("", None)
    one = said(folder, 1)
    assert one["imported_in"] == one["pid"]
