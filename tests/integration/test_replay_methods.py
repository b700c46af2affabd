"""Replay methods in real programs: their memory survives, and the rules of a run hold for them as for other methods."""

import re
from pathlib import Path

import pytest

from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT
from ps_common.run_folder.run_rows import read_episodes
from tests.integration.processes import Programs, children_with, status_of, wait_for

PENDULUM = ["--preset", "pendulum-sac", "--until-return", "None", "--no-web", "--seed", "1"]
CARTPOLE = ["--preset", "cartpole", "--algorithm", "dqn", "--learning-starts", "200", "--no-web", "--seed", "1"]
CONTINUES = re.compile(r"the replay memory in \S+ continues with (\d+) rows")


def rows_continued(log: Path) -> list[int]:
    """The rows that each life of a worker found in its memory."""
    return [int(rows) for rows in CONTINUES.findall(log.read_text())]


def test_a_killed_worker_and_a_resumed_run_have_their_replay_memory_again(programs: Programs, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = programs.start(
        "rl-cluster", *PENDULUM, "--workers", "1", "--max-steps", "1200", "--run-dir", str(run)
    )  # fmt: skip
    endpoint = wait_for(lambda: read_endpoint(run / ENDPOINT), program=first)
    wait_for(lambda: status_of(endpoint).global_steps > 600, program=first)
    (worker,) = children_with("rl_worker", first.process.pid)
    worker.kill()
    assert first.wait() == 0, first.output
    (after_the_kill,) = rows_continued(run / "worker-0.log")
    assert after_the_kill > 600 - 16, "all that was pushed, but for the unrolls under way"

    again = programs.start("rl-cluster", "--resume", str(run), "--no-web", "--max-steps", "1400")
    assert again.wait() == 0, again.output
    resumed = rows_continued(run / "worker-0.log")[-1]
    assert 1200 <= resumed <= 1200 + 64


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", [PENDULUM, CARTPOLE], ids=["sac", "dqn"])
@pytest.mark.parametrize("how", [[], ["--consistency", "sync"], ["--gang"]], ids=["async", "sync", "gang"])
def test_a_run_learns_under_each_rule_and_another_starts_from_it(
    programs: Programs, tmp_path: Path, method: list[str], how: list[str]
) -> None:
    def trained(name: str, *flags: str) -> Path:
        run = tmp_path / name
        cluster = programs.start("rl-cluster", *method, *flags, "--workers", "2", "--run-dir", str(run))
        assert cluster.wait(250) == 0, cluster.output
        return run

    run = trained("run", *how, "--max-steps", "8000")
    games = [game.episode_return for game in read_episodes(run)]
    assert sum(games[-10:]) / 10 > sum(games[:4]) / 4, games
    policy = run / "checkpoints"
    started = trained("started", "--start-from", str(policy), "--max-steps", "1500")
    first = [game.episode_return for game in read_episodes(started)][:2]
    if method is PENDULUM:  # the first actions of dqn are random by its ε, whatever its weights are
        assert sum(first) / 2 > sum(games[:4]) / 4, "its first games are those of the policy that it started from"
