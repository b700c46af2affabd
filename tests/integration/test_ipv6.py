"""Real programs that know each other by IPv6 addresses; and names that nobody knows."""

from pathlib import Path

import pytest

from tests.integration.processes import Programs, status_of, wait_for
from tests.integration.test_mistakes import says
from tests.ps_common.sockets.test_zmq_connect import needs_ipv6
from tests.rows import nightly

FOREVER = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000"]


@pytest.mark.nightly
@needs_ipv6
@pytest.mark.timeout(200)
def test_a_server_its_standby_a_worker_and_people_meet_over_ipv6(programs: Programs, tmp_path: Path) -> None:
    primary, one = programs.start_server(*FOREVER, host="::1")
    assert one.startswith("[::1]:")
    assert f"rl-worker --server {one}" in primary.output
    standby, other = programs.start_server(
        "--standby-of", one, "--takeover-seconds", "2", host="[::1]", run_dir=tmp_path / "other"
    )
    worker = programs.start("rl-worker", "--server", f"{one},{other}")
    wait_for(lambda: f"{other} follows as the standby" in primary.output, program=primary)
    wait_for(lambda: status_of(one).version > 1, program=worker)
    control = programs.start("ps-ctl", "status", "--server", one)
    assert control.wait() == 0, control.output
    assert "cartpole on CartPole-v1 is serving" in control.output
    primary.kill()
    wait_for(lambda: status_of(other).phase == "serving", program=standby)
    version = status_of(other).version
    wait_for(lambda: status_of(other).version > version, program=worker)


@needs_ipv6
@pytest.mark.timeout(200)
@pytest.mark.parametrize("host", ["::1", nightly("::")])
def test_a_cluster_listens_on_an_ipv6_address(programs: Programs, tmp_path: Path, host: str) -> None:
    flags = ["--preset", "cartpole", "--workers", "1", "--max-steps", "2000", "--run-dir", str(tmp_path / "run")]
    cluster = programs.start("rl-cluster", *flags, "--host", host)
    assert cluster.wait(150) == 0, cluster.output


def test_a_name_that_nobody_knows_is_told(programs: Programs, tmp_path: Path) -> None:
    nowhere, told = "no-such-host.invalid", "the name no-such-host.invalid has no address here"
    worker = programs.start("rl-worker", "--server", f"{nowhere}:5555", "--patience-minutes", "0.02")
    control = programs.start("ps-ctl", "status", "--server", f"{nowhere}:5555")
    server = programs.start("ps-server", "--host", nowhere, "--port", "0", "--run-dir", str(tmp_path / "run"))
    says(worker, told, "no reply")
    says(control, told)
    says(server, f"--host {nowhere}", "cannot listen there")
