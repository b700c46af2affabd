"""Real servers begun anew where others were: who brings weights to whom, and who waits."""

import shutil
from pathlib import Path

import pytest

from tests.integration.processes import Program, Programs, status_of, wait_for

pytestmark = pytest.mark.timeout(300)

ENDLESS = ("--preset", "cartpole", "--max-steps", "1000000000", "--until-return", "1000", "--checkpoint-seconds", "1")


def trained(programs: Programs, folder: Path, *, pushes: int) -> tuple[Program, Program, str]:
    """A server, its worker after so many pushes, and where the server listens."""
    server, endpoint = programs.start_server(*ENDLESS, run_dir=folder)
    worker = programs.start("rl-worker", "--server", endpoint, "--name", "w")
    wait_for(lambda: status_of(endpoint).version > pushes, program=worker)
    return server, worker, endpoint


def test_a_run_that_has_lost_its_checkpoints_is_over_and_its_workers_say_what_to_do(
    programs: Programs, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    server, worker, endpoint = trained(programs, folder, pushes=200)
    lost = status_of(endpoint).run_id
    server.kill()
    shutil.rmtree(folder / "checkpoints")
    port = int(endpoint.rpartition(":")[2])
    again, _ = programs.start_server(*ENDLESS, run_dir=folder, port=port)
    said = f"w is of run {lost}: start the worker anew"
    wait_for(lambda: said in worker.output and said in again.output, program=worker)
    assert f"the checkpoints of run {lost} are gone: a new run begins" in again.output
    status = wait_for(lambda: (found := status_of(endpoint)).refused.get("other_run") and found, program=again)
    assert (status.run_id == lost, status.version) == (False, 0)
    fresh = programs.start("rl-worker", "--server", endpoint, "--name", "w")
    wait_for(lambda: status_of(endpoint).updates > 10, program=fresh)
