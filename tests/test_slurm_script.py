"""deploy/slurm/ps-rl.sbatch without Slurm: what it starts, and what signals, deaths and the end of the run do."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_common.program.flags import parse_program, parse_with_run
from ps_server.settings import ServerSettings
from rl_worker.settings import WorkerSettings
from tests.integration.processes import wait_for

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "deploy" / "slurm" / "ps-rl.sbatch"
SCENARIO = ROOT / "deploy" / "slurm" / "scenario.sh"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")

# In place of a program: notes its arguments, then does what the n-th line of the file `lives` says.
PROGRAM = """#!/bin/bash
trap 'touch {folder}/left; kill $(jobs -p); exit 0' TERM
echo "$(basename "$0") $*" >>{folder}/started
life=$(sed -n "$(wc -l <{folder}/started)p" {folder}/lives)
eval "$life"
"""
STAYS = "sleep 60 & wait"


class Task:
    """The script as one task of a job array."""

    def __init__(self, folder: Path, number: int, *arguments: str, lives: tuple[str, ...], restarts: int = 0) -> None:
        self.folder = folder
        (folder / "lives").write_text("\n".join(lives) + "\n")
        for name in ("ps-server", "rl-worker", "rl-cluster", "ps-ctl", "scontrol"):
            (folder / name).write_text(PROGRAM.format(folder=folder) if "-" in name and name != "ps-ctl" else CALLED)
            (folder / name).chmod(0o755)
        slurm = {"SLURM_JOB_ID": "71", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": str(number)}
        variables = slurm | {"SLURM_RESTART_COUNT": str(restarts), "BIN": str(folder), "CALLS": str(folder / "calls")}
        self.process = subprocess.Popen(
            ["bash", SCRIPT, *arguments],
            env=os.environ | variables | {"PATH": f"{folder}:{os.environ['PATH']}"},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def started(self) -> list[list[str]]:
        """The programs that it has started, with their arguments."""
        path = self.folder / "started"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def calls(self) -> list[str]:
        """The other commands that it has called."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def wait_for_start(self) -> list[str]:
        wait_for(self.started)
        return self.started()[-1]

    def end(self) -> tuple[int, str]:
        output, _ = self.process.communicate(timeout=60)
        return self.process.returncode, output


CALLED = """#!/bin/bash
echo "$(basename "$0") $*" >>"$CALLS"
"""


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[list[Task]]:
    """Tasks to be killed with all that they have started."""
    tasks: list[Task] = []
    yield tasks
    for task in tasks:
        if task.process.poll() is None:
            os.killpg(task.process.pid, signal.SIGKILL)
        task.process.communicate()


def test_the_scripts_can_be_read_by_bash() -> None:
    for script in (SCRIPT, SCENARIO):
        subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="needs shellcheck")
def test_shellcheck_finds_nothing() -> None:
    subprocess.run(["shellcheck", SCRIPT, SCENARIO, ROOT / "deploy" / "engine_test.sh"], check=True)


def test_task_0_begins_the_run_with_keys_and_flags_that_ps_server_knows(tmp_path: Path) -> None:
    task = Task(tmp_path, 0, "runs/one", "--preset", "cartpole", "--", "--envs", "3", lives=("exit 0",))
    assert task.end()[0] == 0
    ((program, *flags),) = task.started()
    assert program == "ps-server"
    assert task.calls() == [f"ps-ctl keygen {tmp_path}/runs/one/keys"]
    parsed = parse_with_run(ServerSettings, flags, prog=program)
    assert parsed.run.preset == "cartpole"
    assert parsed.program.run_dir == tmp_path / "runs" / "one"
    assert parsed.program.port == 0
    assert parsed.program.authorized_keys == tmp_path / "runs" / "one" / "keys" / "authorized"


def test_task_0_resumes_a_run_that_has_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "checkpoints" / "checkpoint-000000000100.safetensors").touch()
    task = Task(tmp_path, 0, "run", "--max-steps", "9", lives=("exit 0",), restarts=1)
    assert task.end()[0] == 0
    ((program, *flags),) = task.started()
    parsed = parse_with_run(ServerSettings, flags, prog=program)
    assert (str(parsed.program.resume), parsed.program.run_dir) == (str(tmp_path / "run"), None)


def test_other_tasks_are_workers_with_a_name_that_stays(tmp_path: Path) -> None:
    (tmp_path / "run" / "keys").mkdir(parents=True)
    (tmp_path / "run" / "keys" / "worker.key_secret").touch()
    task = Task(tmp_path, 12, "run", "--preset", "cartpole", "--", "--threads", "3", lives=("exit 0",))
    assert task.end()[0] == 0
    ((program, *flags),) = task.started()
    settings = parse_program(WorkerSettings, flags, prog=program)
    assert (settings.name, settings.threads) == ("slurm-70_12", 3)
    assert settings.server == str(tmp_path / "run" / "endpoint")
    assert settings.curve_secret == tmp_path / "run" / "keys" / "worker.key_secret"


@pytest.mark.parametrize(
    ("number", "calls"), [(signal.SIGUSR1, ["scontrol requeue 71"]), (signal.SIGTERM, [])], ids=["limit", "scancel"]
)
def test_a_task_that_must_go_leaves_in_order(tmp_path: Path, tasks: list[Task], number: int, calls: list[str]) -> None:
    tasks.append(task := Task(tmp_path, 1, "run", lives=(STAYS,)))
    (tmp_path / "run" / "keys").mkdir(parents=True)
    (tmp_path / "run" / "keys" / "worker.key_secret").touch()
    task.wait_for_start()
    os.kill(task.process.pid, number)
    assert task.end()[0] == 0
    assert (tmp_path / "left").exists()
    assert task.calls() == calls
    assert not (tmp_path / "run" / "over").exists()


def test_a_program_that_is_killed_is_started_again(tmp_path: Path) -> None:
    task = Task(tmp_path, 0, "run", lives=("kill -9 $$", "kill -11 $$", "exit 0"))
    status, output = task.end()
    assert status == 0
    assert len(task.started()) == 3
    assert "ended with status 137; it is started again" in output


@pytest.mark.parametrize(("over", "restarts"), [(70, 0), (71, 0), (9, 1)], ids=str)
def test_a_run_that_is_over_keeps_no_worker_waiting(tmp_path: Path, over: int, restarts: int) -> None:
    assert Task(tmp_path, 0, "run", lives=("exit 0",)).end()[0] == 0
    assert (tmp_path / "run" / "over").read_text() == "70\n"
    (tmp_path / "run" / "over").write_text(f"{over}\n")
    worker = Task(tmp_path, 5, "run", lives=(), restarts=restarts)
    status, output = worker.end()
    assert status == 0
    assert "is over" in output
    assert len(worker.started()) == 1  # the server


@pytest.mark.parametrize("flags", [["--workers", "2"], ["--workers=2"]], ids=" ".join)
def test_a_task_of_several_workers_is_one_program(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "run" / "keys").mkdir(parents=True)
    (tmp_path / "run" / "keys" / "worker.key_secret").touch()
    worker = Task(tmp_path, 5, "run", "--", *flags, lives=("kill -15 $PPID; exit 0",))
    assert worker.end()[0] == 0
    ((program, *arguments),) = worker.started()
    assert (program, arguments[-len(flags) :]) == ("rl-cluster", flags)


def test_a_new_job_goes_on_with_a_run_that_was_over(tmp_path: Path) -> None:
    (tmp_path / "run" / "keys").mkdir(parents=True)
    (tmp_path / "run" / "keys" / "worker.key_secret").touch()
    (tmp_path / "run" / "over").write_text("9\n")
    worker = Task(tmp_path, 5, "run", lives=("exit 0", "kill -15 $PPID; exit 0"))
    assert worker.end()[0] == 0
    assert [program for program, *_ in worker.started()] == ["rl-worker"]
    assert Task(tmp_path, 0, "run", lives=("exit 0", "kill -15 $PPID; exit 0")).end()[0] == 0
    assert not (tmp_path / "run" / "over").exists()
