"""A cluster that is asked to end while its server is in trouble."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import ServerUnreachable
from rl_worker.local import local_cluster
from rl_worker.local.local_cluster import LocalCluster
from tests.integration.processes import wait_for

FLAGS = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000"]


@pytest.mark.timeout(300)
def test_a_run_that_is_asked_to_end_ends_though_its_server_has_to_be_killed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is paused, so it neither replies nor leaves on SIGTERM. It is started again, to end in order."""
    monkeypatch.setattr(local_cluster, "LEAVE_SECONDS", 0.2)
    monkeypatch.setattr(local_cluster, "REPLY_SECONDS", 1.0)
    cluster = LocalCluster(
        tmp_path,
        workers=1,
        server_flags=[*FLAGS, "--run-dir", str(tmp_path)],
        worker_flags=[],
        stall_seconds=60.0,
        host="127.0.0.1",
        port=0,
    )
    try:
        wait_for(lambda: updates(cluster) > 0)
        os.kill(cluster._servers[0].child.pid, signal.SIGSTOP)
        cluster.stop("a test")
        wait_for(ends(cluster))
        assert [death.why for death in cluster.take_deaths()] == ["killed by SIGKILL"]
    finally:
        cluster.end()


def updates(cluster: LocalCluster) -> int:
    try:
        status = cluster.poll()
    except ServerUnreachable:
        return 0
    assert status is not None, "nobody has asked it to end"
    return status.updates


def ends(cluster: LocalCluster) -> Callable[[], bool]:
    def has_ended() -> bool:
        try:
            return cluster.poll() is None
        except ServerUnreachable:
            return False

    return has_ended
