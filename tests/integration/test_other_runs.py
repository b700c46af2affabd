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


def test_a_folder_that_has_lost_its_checkpoints_goes_on_with_the_weights_of_its_workers(
    programs: Programs, tmp_path: Path
) -> None:
    """Far beyond the 64 pushes that a server without a ledger takes at a time."""
    folder = tmp_path / "run"
    server, worker, endpoint = trained(programs, folder, pushes=200)
    lost = status_of(endpoint).run_id
    server.kill()
    shutil.rmtree(folder / "checkpoints")
    port = int(endpoint.rpartition(":")[2])
    again, _ = programs.start_server(*ENDLESS, run_dir=folder, port=port)
    wait_for(lambda: status_of(endpoint).updates > 50, program=worker)
    assert status_of(endpoint).run_id != lost
    assert f"the checkpoints of run {lost} are lost; its workers may restore their newest weights" in again.output
    assert "goes on with this worker's, whose checkpoints are lost" in worker.output


def test_a_new_run_on_an_old_port_is_left_alone_until_the_user_says_which_run_it_is(
    programs: Programs, tmp_path: Path
) -> None:
    server, worker, endpoint = trained(programs, tmp_path / "first", pushes=200)
    first = status_of(endpoint).run_id
    server.kill()
    port = int(endpoint.rpartition(":")[2])
    second, _ = programs.start_server(*ENDLESS, "--seed", "7", run_dir=tmp_path / "second", port=port)
    wait_for(lambda: f"--rescue {first}" in worker.output and f"--rescue {first}" in second.output, program=worker)
    status = status_of(endpoint)
    assert (status.version, status.refused["other_run"] > 0) == (0, True)
    fresh = programs.start("rl-worker", "--server", endpoint, "--name", "w")
    wait_for(lambda: status_of(endpoint).updates > 10, program=fresh)
    second.kill()
    fresh.kill()
    rescued, _ = programs.start_server(*ENDLESS, "--rescue", first, run_dir=tmp_path / "third", port=port)
    wait_for(lambda: status_of(endpoint).updates > 50, program=worker)
    assert "w joined" in rescued.output
