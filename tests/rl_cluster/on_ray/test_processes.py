"""Programs that an actor keeps running on its node, without Ray: real servers and workers where it matters."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_common.program.child_processes import Child
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.settings.run_files import load_preset
from rl_cluster.on_ray.processes import MOST_FAILURES, KeptRunning, RunPlan, ServerProcess, WorkerProcess
from tests.integration.processes import wait_for

SECONDS = 60.0


class Script:
    """In place of a Child: ends with the next of these exit statuses; None: it runs."""

    def __init__(self, *statuses: int | None) -> None:
        self._statuses = list(statuses)
        self.started = 0

    def start(self) -> Child:
        self.started += 1
        return Ended(self._statuses.pop(0))  # type: ignore[return-value]


class Ended:
    def __init__(self, status: int | None) -> None:
        self.exit_status = status
        self.is_over = self.has_left = status == 0

    def cause_of_death(self) -> str:
        return "its reason"


def polled(program: KeptRunning, *, until: float = 1000.0) -> float:
    """Poll it every half second, from 0 on, until there is nothing more to do; returns when that was."""
    now = 0.0
    while now < until and program.poll(now=now):
        now += 0.5
    return now


def test_a_killed_program_is_started_again_at_once_and_ends_in_order() -> None:
    script = Script(-9, -11, 0)
    program = KeptRunning(script.start, has_run=False, now=0.0)
    assert polled(program) <= 3.0
    assert (program.is_over, program.failure, script.started) == (True, "", 3)


def test_a_program_that_left_though_the_run_goes_on_is_started_again() -> None:
    """Its node is preempted, and sends SIGTERM."""
    script = Script(0, 0)
    program = KeptRunning(script.start, has_run=False, now=0.0)
    program.child.is_over = False  # type: ignore[misc]
    assert program.poll(now=0.0)
    polled(program)
    assert (program.is_over, script.started) == (True, 2)


def test_a_program_that_fails_at_first_is_not_started_again() -> None:
    script = Script(1)
    program = KeptRunning(script.start, has_run=False, now=0.0)
    polled(program)
    assert (program.is_over, program.failure, script.started) == (False, "its reason", 1)


def test_a_program_that_ran_before_is_tried_for_as_long_as_a_lock_may_take() -> None:
    script = Script(*[1] * 100)
    program = KeptRunning(script.start, has_run=True, now=0.0)
    assert polled(program) > 60.0
    assert program.failure == "its reason"
    assert script.started == MOST_FAILURES + 1


def test_failures_far_apart_are_never_too_many() -> None:
    script = Script(*[None] * 40)
    program = KeptRunning(script.start, has_run=True, now=0.0)
    now = 0.0
    for _ in range(30):
        now += 100.0
        program.child.exit_status = 1  # type: ignore[misc]
        assert program.poll(now=now)
        assert program.poll(now=now + 2.0)
    assert script.started == 31


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    preset = load_preset("cartpole-a3c")
    flags = ("--max-steps", "1000000000", "--until-return", "None")
    folder = str(tmp_path / "run")
    return RunPlan(folder=folder, settings=preset.to_toml(), flags=flags, checkpoint_seconds=0.5, has_keys=True)


@pytest.fixture
def ended() -> Iterator[list[KeptRunning]]:
    programs: list[KeptRunning] = []
    yield programs
    for program in programs:
        program.end()


def test_a_server_and_a_worker_with_keys_train_and_the_server_is_replaced(
    plan: RunPlan, ended: list[KeptRunning]
) -> None:
    server = ServerProcess(plan, host="127.0.0.1", has_run=False, now=time.monotonic())
    ended.append(server.program)
    wait_for(lambda: server.address)
    own = server.folder / "worker-3"
    worker = WorkerProcess(3, server.folder, server.worker_keys(), [], now=time.monotonic())
    ended.append(worker.program)
    worker.follow(server.address)

    def updates() -> int:
        assert server.program.poll(now=time.monotonic()), server.program.failure
        assert worker.program.poll(now=time.monotonic()), worker.program.failure
        worker.follow(server.address)
        status = server.status()
        return 0 if status is None or not status.checkpoint_version else status.updates

    assert (own / "worker.key_secret").stat().st_mode & 0o077 == 0
    before, address = wait_for(updates), server.address
    os.kill(server.program.child.pid, signal.SIGKILL)
    wait_for(lambda: updates() and server.address != address)
    wait_for(lambda: updates() > before)
    assert read_endpoint(own / "endpoint") == server.address
    server.stop_run("the test is over")
    wait_for(lambda: not server.program.poll(now=time.monotonic()))
    assert server.program.is_over


def test_a_run_folder_that_cannot_be_made_is_named(plan: RunPlan, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(SettingsError, match=r"--run-dir .*run: cannot be used: File exists"):
        ServerProcess(plan, host="127.0.0.1", has_run=False, now=0.0)
