"""A real ps-server, killed under load, and moved: each push of the living workers is in the weights exactly once."""

from pathlib import Path

import numpy as np
import pytest

from tests.integration.integer_worker import SCHEMA, told
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of

KILLS = 2
WORKERS = 2
UPDATES = 3000  # of each worker


def resumed_at(server: Program) -> int:
    """The pushes in the checkpoint that it has read: each counts one step."""
    return int(server.output.split(" at step ")[1].split()[0])


@pytest.mark.timeout(300)  # four programs that import torch, one after another
def test_a_server_killed_under_load_loses_no_acknowledged_push(programs: Programs, tmp_path: Path) -> None:
    server, endpoint = programs.start_server("--checkpoint-seconds", "2")
    ports = [int(endpoint.rpartition(":")[2]), 0]  # the second resumed server has moved
    endpoint_file = tmp_path / "run" / "endpoint"
    workers = [
        programs.start("tests.integration.integer_worker", str(endpoint_file), f"w{number}", str(UPDATES), str(number))
        for number in range(WORKERS)
    ]
    forgotten = 0  # by the killed servers
    for kill in range(1, KILLS + 1):
        goal = kill * WORKERS * UPDATES // (KILLS + 1)
        wait_for(lambda goal=goal, endpoint=endpoint: status_of(endpoint).version >= goal, program=server)
        acknowledged = status_of(endpoint).global_steps
        server.kill()
        server, endpoint = programs.start_server(
            "--resume", str(tmp_path / "run"), "--checkpoint-seconds", "2", port=ports.pop(0)
        )
        forgotten += acknowledged - resumed_at(server)
    assert forgotten > 0, "the server was killed each time just after a checkpoint"
    totals = [wait_for(lambda worker=worker: told(worker.output), program=worker) for worker in workers]  # type: ignore[misc]
    wait_for(lambda: status_of(endpoint).version >= 1 + WORKERS * UPDATES, program=server)
    status = status_of(endpoint)
    assert status.version == 1 + WORKERS * UPDATES
    assert status.global_steps == WORKERS * UPDATES
    np.testing.assert_array_equal(weights_of(endpoint, SCHEMA.size).numpy(), -np.sum(totals, axis=0))
