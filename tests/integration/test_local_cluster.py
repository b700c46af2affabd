"""`rl-cluster` and `rl-eval` as a user runs them. CartPole really learns."""

import json
import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.processes import Programs, children_of, status_of, wait_for
from tests.rl_agent.custom_environments import line_with

SUMMARY = {
    "preset", "seed", "global_steps", "updates", "minutes", "steps_per_second", "episodes", "mean_return_100",
    "best_mean_return_100", "minutes_to_target", "staleness_mean",
}  # fmt: skip
# The worker that comes to it first hangs; the next one writes a file instead.
HANGS_ONCE = """
        self.t += 1
        self.all = getattr(self, "all", 0) + 1
        if self.all == 600:
            import ctypes, os, time
            try:
                os.mkdir("hangs")
            except FileExistsError:
                open("went on", "w")
            else:
                ctypes.PyDLL(None).sleep(3600)
"""
FOREVER = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000", "--workers", "2"]


@pytest.mark.nightly
@pytest.mark.timeout(400)  # it takes a minute on two idle cores
def test_cartpole_is_learned_and_evaluated(programs: Programs, tmp_path: Path) -> None:
    run, summary = tmp_path / "run", tmp_path / "summary.json"
    flags = ["--preset", "cartpole-a3c", "--workers", "2", "--seed", "1", "--run-dir", str(run), "--json", str(summary)]
    cluster = programs.start("rl-cluster", *flags)
    assert cluster.wait(300) == 0, cluster.output
    result = json.loads(summary.read_text())
    assert result.keys() >= SUMMARY
    assert result["mean_return_100"] >= 490, cluster.output
    assert 0 < result["minutes_to_target"] <= result["minutes"]
    assert result["seed"] == 1
    assert "steps/s" in cluster.output
    assert "\x1b" not in cluster.output, "a pipe gets plain lines"
    last = [line for line in cluster.output.splitlines() if line.startswith("last 100 ")][-1]
    assert last.startswith(f"last 100 {result['mean_return_100']:.2f}  "), "it is the end of the run"
    assert (
        result["minutes"]
        == _minutes(run)
        == pytest.approx(float(last.partition("  minutes ")[2].split()[0]), abs=0.051)
    )
    assert f"in training after {result['minutes_to_target']:.1f} minutes and" in cluster.output
    assert f"rl-eval --checkpoint {run}\n" in cluster.output
    assert (run / "curve.png").stat().st_size > 1000
    assert (run / "run.toml").exists()

    out = tmp_path / "evaluation.json"
    receipt, video = tmp_path / "receipt.json", tmp_path / "game.mp4"
    flags = ["--episodes", "20", "--greedy", "--json", str(out), "--receipt", str(receipt), "--video", str(video)]
    evaluation = programs.start("rl-eval", "--checkpoint", str(run), *flags)
    assert evaluation.wait() == 0, evaluation.output
    assert video.read_bytes()[4:8] == b"ftyp"
    scores = json.loads(out.read_text())
    assert scores["environment"] == "CartPole-v1"
    # The mean that was reached is one of games with many versions, and these are games with one of them.
    assert scores["mean"] >= 150, f"chance plays 22\n{evaluation.output}"
    if scores["std"]:  # games that all have the same score show no interval
        assert scores["low"] <= scores["mean"] <= scores["high"]
    assert len(scores["scores"]) == 20

    verification = programs.start("rl-eval", "--verify", str(receipt))
    assert verification.wait() == 0, verification.output
    assert f"{receipt}: verified: each of 20 games has its score again" in verification.output
    assert f"mean {scores['mean']:.2f} (" in verification.output


def test_ctrl_c_ends_the_run_in_order(programs: Programs, tmp_path: Path) -> None:
    run, summary = tmp_path / "run", tmp_path / "summary.json"
    cluster = programs.start("rl-cluster", *FOREVER, "--run-dir", str(run), "--json", str(summary))
    wait_for(lambda: "workers 2" in cluster.output or _episodes(run) > 10, program=cluster)
    children = psutil.Process(cluster.process.pid).children(recursive=True)
    assert len(children) == 5, "a fork server, a server, two workers and the page"
    cluster.signal(signal.SIGINT)
    assert cluster.wait(30) == 0, cluster.output
    assert not any(child.is_running() for child in children)
    assert json.loads(summary.read_text())["global_steps"] > 0
    assert list((run / "checkpoints").glob("checkpoint-*.safetensors"))


@pytest.mark.nightly
def test_an_environment_that_hangs_is_reported_keeps_nobody_waiting_and_its_worker_is_replaced(
    programs: Programs, tmp_path: Path
) -> None:
    """It keeps the interpreter: no thread of its worker runs any more."""
    (tmp_path / "own.py").write_text(line_with("self.t += 1", HANGS_ONCE))
    flags = ["--environment", "own:Line-v0", "--envs", "1", "--workers", "2", "--run-dir", "run"]
    patience = ["--consistency", "ssp", "--slack", "1", "--stall-seconds", "4"]
    cluster = programs.start("rl-cluster", *flags, *patience, folder=tmp_path)
    wait_for(lambda: "it hangs: " in cluster.output, program=cluster)
    wait_for(lambda: (tmp_path / "went on").exists(), program=cluster)
    endpoint = (tmp_path / "run" / "endpoint").read_text().strip()
    steps = status_of(endpoint).global_steps
    wait_for(lambda: status_of(endpoint).global_steps > steps + 1000, program=cluster)
    cluster.signal(signal.SIGTERM)
    assert cluster.wait() == 0, cluster.output
    assert re.search(
        r"worker-[01] died: it hangs: (no step for \d+ s, in .*own.py, line \d+, step|silent)", cluster.output
    )
    assert cluster.output.count(" died: ") == 1, cluster.output


def test_a_process_that_is_killed_is_reported_and_replaced(programs: Programs, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cluster = programs.start("rl-cluster", *FOREVER, "--run-dir", str(run), "--no-web")
    wait_for(lambda: _episodes(run) > 0, program=cluster)
    for child in children_of(cluster):
        child.kill()
        psutil.wait_procs([child])
        wait_for(lambda: len(children_of(cluster)) == 3, program=cluster)
    wait_for(lambda: cluster.output.count("died: killed by SIGKILL") == 3, program=cluster)
    cluster.signal(signal.SIGINT)
    assert cluster.wait() == 0, cluster.output
    for who in ("the server", "worker-0", "worker-1"):
        assert f"{who} died: killed by SIGKILL" in cluster.output
    assert "its processes died 3 times" in cluster.output


def _minutes(run: Path) -> float:
    """Minutes of training in all epochs, by the server's last row."""
    return float(json.loads((run / "metrics.jsonl").read_bytes().splitlines()[-1])["minutes"])


def _episodes(run: Path) -> int:
    try:
        return int(json.loads((run / "metrics.jsonl").read_bytes().splitlines()[-1])["episodes"])
    except (OSError, IndexError, ValueError):
        return 0
