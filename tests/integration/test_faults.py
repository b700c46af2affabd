"""Real processes, really killed: the run goes on."""

import os
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.trials.counting import rest
from tests.documents.commands import blocks_of
from tests.integration.processes import Program, Programs, status_of, wait_for
from tests.rows import nightly

BEFORE_ITS_LEASE = 3.0  # seconds after which a worker that said no goodbye still counts as alive

FOREVER = ["--preset", "cartpole", "--seed", "0", "--max-steps", "100000000", "--until-return", "1000"]


def steps_beyond(endpoint: str, steps: int, program: Program) -> int:
    """Wait until T is beyond `steps`; returns it."""
    return int(
        wait_for(
            lambda: status.global_steps if (status := status_of(endpoint)).global_steps > steps else 0, program=program
        )
    )


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, *(nightly(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1))]
)
def test_a_signal_saves_and_exits(programs: Programs, tmp_path: Path, number: int) -> None:
    """Twice: a second signal changes nothing."""
    server, endpoint = programs.start_server(*FOREVER)
    worker = programs.start("rl-worker", "--server", endpoint)
    steps_beyond(endpoint, 0, server)
    worker.signal(number)
    worker.signal(number)
    assert worker.wait() == 0, worker.output
    assert "asked to leave: everything is pushed" in worker.output
    wait_for(lambda: status_of(endpoint).workers_alive == 0, within_seconds=BEFORE_ITS_LEASE)
    server.signal(number)
    server.signal(number)
    assert server.wait() == 0, server.output
    assert list((tmp_path / "run" / "checkpoints").glob("checkpoint-*.safetensors"))
    assert not (tmp_path / "run" / "endpoint").exists()
    assert "Traceback" not in worker.output + server.output


def handles(program: Program, number: signal.Signals) -> bool:
    """Whether the process has a handler for this signal; the interpreter itself takes a moment to start."""
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def test_a_signal_during_the_start_ends_a_program_with_success(programs: Programs, tmp_path: Path) -> None:
    """While it imports torch, and a little later."""
    server = ("ps-server", "--host", "127.0.0.1", "--port", "0", "--preset", "cartpole", "--run-dir")
    starts = [
        programs.start(*command)
        for number in range(2)
        for command in ((*server, str(tmp_path / str(number))), ("rl-worker", "--server", "127.0.0.1:9"))
    ]
    for number, program in enumerate(starts):
        wait_for(lambda program=program: handles(program, signal.SIGTERM), program=program)  # type: ignore[misc]
        rest(0.0 if number < 2 else 1.0)
        program.signal(signal.SIGTERM)
    for program in starts:
        assert program.wait() == 0, program.output
        assert "Traceback" not in program.output


@pytest.mark.nightly
def test_a_line_of_shell_turns_a_notice_into_a_signal(programs: Programs, tmp_path: Path) -> None:
    """The lines of docs/OPERATIONS.md, with a `curl` that looks for a file."""
    _, endpoint = programs.start_server(*FOREVER)
    notice = tmp_path / "notice"
    [block] = [block.text for block in blocks_of("docs/OPERATIONS.md") if "exec kill" in block.text]
    worker_script = block.replace("HOST:5555", endpoint).replace("sleep 5", "sleep 0.1")
    for name, script in (("curl", f"test -e '{notice}'"), ("worker", worker_script)):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}")
        (tmp_path / name).chmod(0o755)
    places = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    worker = programs.start(str(tmp_path / "worker"), variables={"PATH": places})
    steps_beyond(endpoint, 0, worker)
    notice.touch()
    assert worker.wait() == 0, worker.output
    assert "asked to leave: everything is pushed" in worker.output
