"""Real programs that know each other by IPv6 addresses; and names that nobody knows."""

from pathlib import Path

import pytest

from tests.integration.processes import Programs
from tests.ps_common.sockets.test_zmq_connect import needs_ipv6
from tests.rows import nightly


@needs_ipv6
@pytest.mark.timeout(200)
@pytest.mark.parametrize("host", ["::1", nightly("::")])
def test_a_cluster_listens_on_an_ipv6_address(programs: Programs, tmp_path: Path, host: str) -> None:
    flags = ["--preset", "cartpole", "--workers", "1", "--max-steps", "2000", "--run-dir", str(tmp_path / "run")]
    cluster = programs.start("rl-cluster", *flags, "--host", host)
    assert cluster.wait(150) == 0, cluster.output
