"""Real programs: ps-ctl steers a run, another client sees it, and kill −9 with --resume keeps it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import Programs, status_of, wait_for


def ps_ctl(*words: str) -> str:
    """The output of ps-ctl; an error's, too."""
    program = [str(Path(sys.executable).with_name("ps-ctl")), *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.timeout(300)
def test_a_drained_run_lets_its_workers_leave_in_order_is_saved_and_goes_on_after_resume(
    programs: Programs, tmp_path: Path
) -> None:
    server, endpoint = programs.start_server("--preset", "cartpole-a3c", "--prefetch", "2", "--until-return", "None")
    workers = [programs.start("rl-worker", "--server", endpoint, "--name", name) for name in "ab"]
    wait_for(lambda: {worker.worker_id for worker in status_of(endpoint).workers if worker.pushes} == {"a", "b"})
    assert "paused: false -> true" in ps_ctl("pause", "--server", endpoint), "pushes that wait are applied, too"
    printed = ps_ctl("drain", "--server", endpoint)
    assert [worker.wait() for worker in workers] == [0, 0]
    assert all("its workers were asked to leave" in worker.output for worker in workers)
    status = status_of(endpoint)
    assert (status.phase, status.drained, status.workers_alive) == ("serving", True, 0)
    assert f"version {status.version} saved as" in printed, "with every push"
    assert status.checkpoint_version == status.version
    soon = {"ps_client.machine.patience.WARNING_SECONDS": 0.5}
    late = programs.start("rl-worker", "--server", endpoint, "--name", "c", constants=soon)
    wait_for(lambda: "this run is drained" in late.output, program=late)
    assert "drained: true -> false" in ps_ctl("resume", "--server", endpoint)
    wait_for(lambda: status_of(endpoint).version > status.version, program=late)
    ps_ctl("drain", "--server", endpoint)
    assert late.wait() == 0
    assert server.process.poll() is None
