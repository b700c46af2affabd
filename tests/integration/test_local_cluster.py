"""`rl-cluster` and `rl-eval` as a user runs them. CartPole really learns."""

import json
import re
import signal
import socket
import tomllib
from pathlib import Path

import psutil
import pytest
import torch

from ps_common.errors import PsRlError
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.run_rows import EventRow, MetricsRow, last_row, rows_in
from ps_rl.run import Run
from tests.integration.processes import Programs, children_of, status_of, wait_for
from tests.rl_agent.custom_environments import line_with
from tests.rows import nightly

SUMMARY = {
    "preset", "seed", "global_steps", "updates", "minutes", "steps_per_second", "episodes", "mean_return_100",
    "best_mean_return_100", "minutes_to_target", "staleness_mean",
}  # fmt: skip
RAISES_LATE = """
        self.t += 1
        self.all = getattr(self, "all", 0) + 1
        if self.all > 400:
            raise ValueError("the line is too long")
"""
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
                {hang}
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
    last = [line for line in cluster.output.splitlines() if line.startswith("minutes ")][-1]
    assert f"mean return of the last 100 {result['mean_return_100']:.2f}  " in last, "it is the end of the run"
    assert result["minutes"] == _minutes(run) == pytest.approx(float(last.split()[1]), abs=0.051)
    assert f"in training after {result['minutes_to_target']:.1f} minutes and" in cluster.output
    assert f"rl-eval --checkpoint {run}\n" in cluster.output
    assert (run / "curve.png").stat().st_size > 1000
    assert (run / "run.toml").exists()

    out = tmp_path / "evaluation.json"
    receipt, film = tmp_path / "receipt.json", tmp_path / "film.mp4"
    flags = ["--episodes", "20", "--greedy", "--json", str(out), "--receipt", str(receipt)]
    evaluation = programs.start("rl-eval", "--checkpoint", str(run), *flags)
    assert evaluation.wait() == 0, evaluation.output
    scores = json.loads(out.read_text())
    assert scores["environment"] == "CartPole-v1"
    # The mean that was reached is one of games with many versions, and these are games with one of them.
    assert scores["mean"] >= 150, f"chance plays 22\n{evaluation.output}"
    assert scores["low"] <= scores["mean"] <= scores["high"]
    assert len(scores["scores"]) == 20

    verification = programs.start("rl-eval", "--verify", str(receipt))
    assert verification.wait() == 0, verification.output
    assert f"{receipt}: verified: each of 20 games has its score again" in verification.output
    assert f"mean {scores['mean']:.2f} (" in verification.output
    filming = programs.start("rl-eval", "--checkpoint", str(run), "--film", str(film))
    assert filming.wait() == 0, filming.output
    assert film.read_bytes()[4:8] == b"ftyp"


@pytest.mark.nightly
def test_rounds_with_a_seed_come_to_the_same_weights_each_time(programs: Programs, tmp_path: Path) -> None:
    """Two worker processes, whichever is first at anything."""
    flags = ["--preset", "cartpole", "--workers", "2", "--seed", "7", "--max-steps", "4000"]
    rounds = ["--consistency", "sync", "--quorum", "2"]
    ends = []
    for run in (tmp_path / "first", tmp_path / "second"):
        cluster = programs.start("rl-cluster", *flags, *rounds, "--run-dir", str(run))
        assert cluster.wait() == 0, cluster.output
        newest = max((run / "checkpoints").glob("checkpoint-*.safetensors"))
        ends.append(read_checkpoint(newest))
    (first, first_record), (second, second_record) = ends
    assert first_record.version == second_record.version > 100
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_live_server_can_be_evaluated(programs: Programs, tmp_path: Path) -> None:
    server, endpoint = programs.start_server("--preset", "cartpole", "--max-steps", "100000000")
    programs.start("rl-worker", "--server", endpoint)
    wait_for(lambda: status_of(endpoint).version > 1, program=server)
    evaluation = programs.start("rl-eval", "--server", endpoint, "--episodes", "3")
    assert evaluation.wait() == 0, evaluation.output
    assert "CartPole-v1: mean" in evaluation.output


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
def test_under_nohup_a_lost_terminal_ends_no_program(programs: Programs, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cluster = programs.start("rl-cluster", *FOREVER, "--run-dir", str(run), prefix=("nohup",))
    wait_for(lambda: _episodes(run) > 0, program=cluster)
    children = psutil.Process(cluster.process.pid).children()
    for process in (psutil.Process(cluster.process.pid), *children):
        process.send_signal(signal.SIGHUP)
    before = _episodes(run)
    wait_for(lambda: _episodes(run) > before + 20, program=cluster)
    assert all(child.is_running() for child in children)
    assert "died" not in cluster.output
    cluster.signal(signal.SIGTERM)
    assert cluster.wait(30) == 0, cluster.output
    assert not any(child.is_running() for child in children)
    for file, who in (("server.log", "ps-server"), ("worker-1.log", "worker-1")):
        assert re.search(rf"^\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d INFO {who}: ", (run / file).read_text(), re.MULTILINE)


def test_children_do_not_outlive_a_cluster_that_is_killed(programs: Programs, tmp_path: Path) -> None:
    run = tmp_path / "run"
    cluster = programs.start("rl-cluster", *FOREVER, "--run-dir", str(run))
    wait_for(lambda: _episodes(run) > 0, program=cluster)
    children = psutil.Process(cluster.process.pid).children(recursive=True)
    assert len(children) == 5, "a fork server, a server, two workers and the page"
    cluster.kill()
    gone, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    assert len(gone) == 5


@pytest.mark.nightly
def test_an_environment_that_keeps_raising_ends_the_run_with_its_error(programs: Programs, tmp_path: Path) -> None:
    """It raises long after it was tried, and after gradients were pushed."""
    (tmp_path / "own.py").write_text(line_with("self.t += 1", RAISES_LATE))
    flags = ["--environment", "own:Line-v0", "--envs", "1", "--workers", "1", "--run-dir", "run"]
    cluster = programs.start("rl-cluster", *flags, folder=tmp_path)
    assert cluster.wait() == 1
    why = "ValueError: the line is too long (own.py, line 27)"
    assert cluster.output.count(f"worker-0 died: {why} (its log: run/worker-0.log); it is started again") == 2
    assert f"rl-cluster: worker-0 died 3 times in a row, each within 60 s of work: {why}" in cluster.output
    assert "Traceback" not in cluster.output
    failed = last_row(tmp_path / "run" / "metrics.jsonl", MetricsRow)
    assert failed is not None
    assert failed.failed
    assert why in failed.ending
    kinds = {event.kind for event in rows_in(tmp_path / "run" / "events.jsonl", EventRow) if why in event.text}
    assert kinds == {"warning", "end"}, "the last words of the workers, and the end of the run"
    with pytest.raises(PsRlError, match="worker-0 died 3 times in a row"):
        Run.open(tmp_path / "run").wait()


@pytest.mark.nightly
@pytest.mark.parametrize(
    "hang",
    [
        nightly("time.sleep(3600)", id="asleep"),
        pytest.param("ctypes.PyDLL(None).sleep(3600)", id="in native code"),
    ],
)
def test_an_environment_that_hangs_is_reported_keeps_nobody_waiting_and_its_worker_is_replaced(
    programs: Programs, tmp_path: Path, hang: str
) -> None:
    """The second kind keeps the interpreter: no thread of its worker runs any more."""
    (tmp_path / "own.py").write_text(line_with("self.t += 1", HANGS_ONCE.format(hang=hang)))
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


@pytest.mark.nightly
def test_a_run_is_resumed_on_the_port_that_is_asked_for(programs: Programs, tmp_path: Path) -> None:
    run, summary = tmp_path / "run", tmp_path / "summary.json"
    flags = ["--preset", "cartpole-a3c", "--workers", "1"]
    first = programs.start("rl-cluster", *flags, "--max-steps", "2000", "--run-dir", str(run), "--json", str(summary))
    assert first.wait() == 0, first.output
    assert f"rl-cluster --resume {run} " in first.output, "it says how"
    minutes = _minutes(run)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    resume = ["--resume", str(run), "--workers", "1", "--host", "0.0.0.0", "--port", str(port), "--json", str(summary)]
    again = programs.start("rl-cluster", *resume, "--max-steps", "1000000", "--until-return", "600")
    wait_for(lambda: f":{port}" in again.output and "rl-worker --server" in again.output, program=again)
    helper = programs.start("rl-worker", "--server", f"127.0.0.1:{port}", "--name", "helper")
    wait_for(
        lambda: any(worker.pushes for worker in status_of(f"127.0.0.1:{port}").workers if worker.worker_id == "helper"),
        program=again,
    )
    again.signal(signal.SIGINT)
    assert again.wait() == 0, again.output
    assert helper.wait() == 0, helper.output
    result = json.loads(summary.read_text())
    assert result["global_steps"] > 2000
    assert result["preset"] == "cartpole-a3c"
    assert result["minutes"] == _minutes(run) > minutes, "those of before count, as they do against --max-minutes"
    assert tomllib.loads((run / "run.toml").read_text())["budget"]["max_steps"] == 1_000_000


def _minutes(run: Path) -> float:
    """Minutes of training in all epochs, by the server's last row."""
    return float(json.loads((run / "metrics.jsonl").read_bytes().splitlines()[-1])["minutes"])


def _episodes(run: Path) -> int:
    try:
        return int(json.loads((run / "metrics.jsonl").read_bytes().splitlines()[-1])["episodes"])
    except (OSError, IndexError, ValueError):
        return 0
