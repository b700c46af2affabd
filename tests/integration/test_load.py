"""ps-bench against real servers."""

import json
import subprocess
import sys

import pytest

from tests.integration.processes import Programs, status_of


def bench(*flags: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ps_bench", "load", "--join-seconds", "50", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.nightly
def test_many_workers_join_a_server_without_a_run_and_are_served_equally(programs: Programs) -> None:
    server, endpoint = programs.start_server("--lease-seconds", "60")
    tested = bench("--server", endpoint, "--workers", "200", "--seconds", "3", "--parameters", "2000", "--json")
    assert tested.returncode == 0, tested.stderr
    result = json.loads(tested.stdout)
    assert (result["joined"], result["refused"], result["discarded"], result["lost"]) == (200, {}, 0, 0)
    assert result["pushes"] >= 200
    assert result["fairness"] >= 0.8, "make load asks for 0.95, on a machine that does nothing else"
    assert result["round_trip_seconds"]["p50"] <= result["round_trip_seconds"]["p99"]
    memory = result["memory"]
    assert 0 < memory["before"] <= memory["peak"]
    assert memory["pushing"] - memory["before"] <= memory["most_growth"]
    status = status_of(endpoint)
    assert (status.preset, status.workers_alive, status.parameters) == ("ps-bench", 0, 2000)
    assert status.updates >= result["pushes"]
    assert "is gone" not in server.output, "all have sent GOODBYE"
