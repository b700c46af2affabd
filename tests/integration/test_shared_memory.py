"""Real processes on one host: vectors go through memory where they can, by wire where not, and nothing is left."""

import sys

import numpy as np
import pytest

from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of
from tests.segments import open_in

PARAMETERS = 50_000  # large enough for memory to be worth it
UPDATES = 200
MOST_SAVED = 20  # checkpoints in the few seconds of a test

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory files are Linux's")


def kept_by(program: Program) -> int:
    """Segments that a process has open or mapped."""
    return open_in(program.process.pid)


def worker(
    programs: Programs, endpoint: str, name: str, *more: int, prefix: tuple[str, ...] = (), updates: int = UPDATES
) -> Program:
    numbers = [updates, len(name), PARAMETERS, *more]
    return programs.start("tests.integration.integer_worker", endpoint, name, *map(str, numbers), prefix=prefix)


def pushed(program: Program) -> np.ndarray:
    """The sum of all pushes of a worker, once it has pushed everything."""
    wait_for(lambda: "pushed" in program.output and program.output.endswith("\n"), program=program)
    line = next(line for line in program.output.splitlines() if line.startswith("pushed"))
    return np.array(line.split()[1:], dtype=np.float64)


def test_two_workers_of_one_host_push_and_pull_without_a_copy_for_the_wire(programs: Programs) -> None:
    server, endpoint = programs.start_server()
    workers = [worker(programs, endpoint, name) for name in ("a", "bb")]
    total = sum(pushed(one) for one in workers)
    assert status_of(endpoint).snapshots <= MOST_SAVED, "of 400 versions only those that a checkpoint held"
    assert kept_by(server) > 0
    np.testing.assert_array_equal(weights_of(endpoint, PARAMETERS).numpy(), -total)


def test_of_workers_that_were_killed_or_left_the_server_keeps_nothing(programs: Programs) -> None:
    server, endpoint = programs.start_server("--lease-seconds", "1")
    for round_ in range(2):
        workers = [worker(programs, endpoint, f"{round_}{name}", updates=10) for name in "abc"]
        for one in workers:
            pushed(one)
        assert kept_by(server) > 0
        for one in workers:
            one.kill()
        wait_for(lambda: kept_by(server) == 0, program=server)
