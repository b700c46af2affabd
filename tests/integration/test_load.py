"""ps-bench against real servers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.processes import Programs, status_of, wait_for


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


@pytest.mark.nightly
def test_somebodys_training_is_left_alone_unless_told_and_then_keeps_its_steps(programs: Programs) -> None:
    _, endpoint = programs.start_server("--preset", "cartpole", "--max-steps", "1000000000")
    refused = bench("--server", endpoint, "--workers", "2", "--seconds", "0.1")
    assert (refused.returncode, status_of(endpoint).version) == (2, 0)
    assert "has no weights yet" in refused.stderr
    worker = programs.start("rl-worker", "--server", endpoint)
    wait_for(lambda: status_of(endpoint).updates > 0, program=worker)
    worker.kill()
    refused = bench("--server", endpoint, "--workers", "2", "--seconds", "0.1")
    assert refused.returncode == 2
    assert "is somebody's training" in refused.stderr
    before = status_of(endpoint)
    allowed = bench("--server", endpoint, "--workers", "2", "--seconds", "0.5", "--yes-disturb-this-run")
    assert allowed.returncode == 0, allowed.stderr
    after = status_of(endpoint)
    assert after.version > before.version
    assert after.global_steps == before.global_steps


@pytest.mark.nightly
def test_no_server_and_a_locked_server_end_in_a_sentence(programs: Programs, tmp_path: Path) -> None:
    programs.start("ps-ctl", "keygen", str(tmp_path / "keys")).wait()
    keys = tmp_path / "keys"
    _, endpoint = programs.start_server(
        "--curve-secret", str(keys / "server.key_secret"), "--authorized-keys", str(keys / "authorized")
    )
    client = ["--curve-server-key", str(keys / "server.key"), "--curve-secret", str(keys / "worker.key_secret")]
    tested = bench("--server", endpoint, "--workers", "20", "--seconds", "0.5", "--parameters", "100", *client)
    assert tested.returncode == 0, tested.stderr
    assert "joined          20 of 20" in tested.stdout
    no_name = bench("--server", "nowhere.invalid:5555")
    assert (no_name.returncode, no_name.stdout) == (1, "")
    assert no_name.stderr.startswith("ps-bench: nowhere.invalid:5555: the name")


@pytest.mark.parametrize("flags", [["--workers", "0"], ["--processes", "0"], ["--server", "nowhere"]])
def test_flags_that_make_no_sense_are_named(flags: list[str]) -> None:
    refused = bench("--server", "127.0.0.1:9", *flags)
    assert refused.returncode == 2
    assert flags[0] in refused.stderr
