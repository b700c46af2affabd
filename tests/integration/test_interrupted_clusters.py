"""A cluster that is asked to end while its processes start, hang or are in trouble; and a server that ends unasked."""

import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from ps_common.errors import ServerUnreachable
from ps_common.program.stop_signals import SAME_SECONDS
from rl_cluster.local_cluster import LocalCluster
from tests.integration.processes import Program, Programs, wait_for
from tests.rl_agent.custom_environments import line_with


def ends(cluster: LocalCluster) -> Callable[[], bool]:
    def has_ended() -> bool:
        try:
            return cluster.poll() is None
        except ServerUnreachable:
            return False

    return has_ended


HANGS = """
        self.t += 1
        self.all = getattr(self, "all", 0) + 1
        if self.all == 600:
            import ctypes, os
            open(f"hangs-{os.getpid()}", "w").close()
            ctypes.PyDLL(None).sleep(3600)
"""


@pytest.fixture
def hung(programs: Programs, tmp_path: Path) -> tuple[Program, list[psutil.Process]]:
    """A cluster whose workers hang in native code, and its processes."""
    (tmp_path / "own.py").write_text(line_with("self.t += 1", HANGS))
    flags = ["--environment", "own:Line-v0", "--envs", "1", "--workers", "3", "--run-dir", "run"]
    cluster = programs.start("rl-cluster", *flags, folder=tmp_path)
    wait_for(lambda: len(list(tmp_path.glob("hangs-*"))) == 3, program=cluster)
    return cluster, psutil.Process(cluster.process.pid).children()


@pytest.mark.timeout(300)
def test_a_second_signal_ends_a_cluster_at_once(hung: tuple[Program, list[psutil.Process]]) -> None:
    cluster, children = hung
    cluster.signal(signal.SIGTERM)
    first = time.monotonic()
    wait_for(lambda: time.monotonic() > first + 2 * SAME_SECONDS, program=cluster)
    cluster.signal(signal.SIGTERM)
    assert cluster.wait(5) == 130, cluster.output
    assert "rl-cluster: interrupted again: its processes were killed" in cluster.output
    assert "Traceback" not in cluster.output
    psutil.wait_procs(children, timeout=5)
    assert not any(child.is_running() for child in children)
