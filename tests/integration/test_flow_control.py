"""A real ps-server with a budget of one vector, and four workers that push all they can."""

from pathlib import Path

import numpy as np
import pytest

from tests.integration.integer_worker import SCHEMA, told
from tests.integration.processes import Programs, status_of, wait_for, weights_of

WORKERS = 4
UPDATES = 300  # of each worker
ONE_VECTOR_MIB = 1.5 * 4 * SCHEMA.size / 2**20


@pytest.mark.timeout(300)  # five programs that import torch
def test_workers_that_must_take_turns_lose_nothing(programs: Programs, tmp_path: Path) -> None:
    server, endpoint = programs.start_server("--receive-mib", f"{ONE_VECTOR_MIB:.12f}")
    workers = [
        programs.start("tests.integration.integer_worker", endpoint, f"w{number}", str(UPDATES), str(number))
        for number in range(WORKERS)
    ]
    totals = [wait_for(lambda worker=worker: told(worker.output), program=worker) for worker in workers]  # type: ignore[misc]
    wait_for(lambda: status_of(endpoint).version >= 1 + WORKERS * UPDATES, program=server)
    wait_for(lambda: status_of(endpoint).version == 1 + WORKERS * UPDATES)
    np.testing.assert_array_equal(weights_of(endpoint, SCHEMA.size).numpy(), -np.sum(totals, axis=0))
