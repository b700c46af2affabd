"""Real programs: ps-ctl steers a run, another client sees it, and kill −9 with --resume keeps it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ps_common.errors import RequestRefused
from ps_common.protocol import messages
from ps_common.run_folder.paths import EVENTS
from ps_common.run_folder.run_rows import EventRow, rows_in
from ps_common.sockets.request import ask
from tests.integration.processes import Programs, status_of, wait_for


def ps_ctl(*words: str) -> str:
    """The output of ps-ctl; an error's, too."""
    program = [str(Path(sys.executable).with_name("ps-ctl")), *words]
    return subprocess.run(program, capture_output=True, text=True, timeout=60, check=False).stdout


@pytest.mark.timeout(300)
def test_what_was_adjusted_is_seen_by_others_and_kept_when_the_server_is_killed(
    programs: Programs, tmp_path: Path
) -> None:
    server, endpoint = programs.start_server()
    port = int(endpoint.rpartition(":")[2])
    programs.start("tests.integration.integer_worker", endpoint, "w", "1000000", "1")
    wait_for(lambda: status_of(endpoint).version > 50, program=server)
    told = ps_ctl("set", "learning_rate=1e-4", "max_minutes=600", "--server", endpoint)
    assert "schedule.learning_rate: 1 -> 0.0001, from T" in told
    assert "paused: false -> true" in ps_ctl("pause", "--server", endpoint)
    wait_for(lambda: (tmp_path / "run" / EVENTS).read_text().count("checkpoint") >= 2, program=server)
    before = status_of(endpoint)
    assert (before.learning_rate, before.max_minutes, before.paused) == (1e-4, 600.0, True)
    for _ in range(3):
        version = status_of(endpoint).version
    assert version == before.version, "no push is settled while the run is paused"
    ps_ctl("checkpoint", "--server", endpoint)
    server.kill()
    server, _ = programs.start_server("--resume", str(tmp_path / "run"), port=port)
    after = wait_for(lambda: (status := status_of(endpoint)).workers_alive and status, program=server)
    assert after.adjustments == before.adjustments
    assert (after.learning_rate, after.max_minutes, after.paused) == (1e-4, 600.0, True)
    assert json.loads(ps_ctl("resume", "--server", endpoint, "--json"))["adjustments"][0]["after"] is False
    wait_for(lambda: status_of(endpoint).version > before.version, program=server)
    kinds = [row.kind for row in rows_in(tmp_path / "run" / EVENTS, EventRow)]
    assert kinds.count("adjustment") == 4
    printed = ps_ctl("events", "--no-follow", "--server", endpoint)
    assert "has set paused from true to false" in printed
    with pytest.raises(RequestRefused, match=r"schedule\.learning_rate: nan is not allowed"):
        ask(
            endpoint,
            messages.Adjust(request=1, settings={"schedule.learning_rate": float("nan")}),
            timeout_seconds=10,
        )


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
