"""Programs that are stopped for longer than anybody waits for them, and go on: as if they had run all the time."""

import signal

import pytest

from benchmarks.trials.counting import rest
from tests.integration.processes import Programs, status_of, wait_for

pytestmark = pytest.mark.nightly

PAUSE_SECONDS = 7.0
FOREVER = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000"]


def test_a_pause_of_the_server_is_no_time_of_training_and_of_no_lease(programs: Programs) -> None:
    server, endpoint = programs.start_server(*FOREVER, "--max-minutes", "0.1", "--lease-seconds", "2")
    worker = programs.start("rl-worker", "--server", endpoint)
    wait_for(lambda: status_of(endpoint).global_steps > 0, program=worker)
    server.signal(signal.SIGSTOP)
    rest(PAUSE_SECONDS)
    server.signal(signal.SIGCONT)
    after = status_of(endpoint)
    assert (after.ending, after.workers_alive) == ("", 1)
    assert after.minutes < 0.1
    wait_for(lambda: status_of(endpoint).global_steps > after.global_steps, program=worker)
    assert "is gone" not in server.output
    assert server.wait() == 0
    assert "the run is over: max_minutes 0.1 reached" in server.output
