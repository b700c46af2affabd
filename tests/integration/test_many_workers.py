"""Several workers of one machine under one command: they work, are replaced when they die, and leave in order."""

import re
import signal

import psutil  # type: ignore[import-untyped]
import pytest

from tests.integration.processes import Programs, children_of, status_of, wait_for
from tests.integration.test_faults import FOREVER

pytestmark = pytest.mark.timeout(300)


def test_workers_of_one_machine_live_die_and_leave_together(programs: Programs) -> None:
    server, endpoint = programs.start_server(*FOREVER, "--lease-seconds", "1")
    many = programs.start("rl-cluster", "--server", endpoint, "--workers", "2", "--name", "host")
    wait_for(lambda: status_of(endpoint).workers_alive == 2, program=many)
    assert {worker.worker_id for worker in status_of(endpoint).workers} == {"host-0", "host-1"}
    children = children_of(many)
    assert len(children) == 2
    children[0].kill()
    death = r"(host-\d) died: killed by SIGKILL; it is started again"
    (name,) = wait_for(lambda: re.findall(death, many.output), program=many)
    wait_for(lambda: f"{name} joined" in server.output.partition("is gone")[2], program=many)
    many.signal(signal.SIGTERM)
    assert many.wait() == 0, many.output
    wait_for(lambda: status_of(endpoint).workers_alive == 0)
    assert re.findall(r"(host-\d): asked to leave: everything is pushed", many.output)
    assert "all workers have left" in many.output
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
