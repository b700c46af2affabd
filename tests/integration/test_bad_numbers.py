"""Environments that return a number that nothing can be learned from, and what a run makes of them."""

import re
from pathlib import Path

from ps_common.run_folder.paths import METRICS
from ps_common.run_folder.run_rows import MetricsRow, last_row
from tests.integration.processes import Program, Programs

# Games of five steps; `BAD` says which of its rewards an environment returns instead of the true one.
ENVIRONMENT = """
import gymnasium, numpy, threading
from gymnasium.spaces import Box, Discrete

class Env(gymnasium.Env):
    observation_space, action_space = Box(0, 1, (2,), numpy.float32), Discrete(2)
    made = 0

    def __init__(self):
        self.number, self.steps = Env.made, 0
        Env.made += 1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.np_random.random(2, numpy.float32), {}

    def step(self, action):
        self.t += 1
        self.steps += 1
        reward = BAD(self) or float(action)
        return self.np_random.random(2, numpy.float32), reward, self.t == 5, False, {}
"""


def begun(programs: Programs, folder: Path, bad: str, *flags: str) -> Program:
    (folder / "games.py").write_text(ENVIRONMENT + f"\ndef BAD(env):\n    {bad}\n")
    common = ("--workers", "1", "--no-web", "--run-dir", "run", "--seed", "1")
    return programs.start("rl-cluster", "--environment", "games:Env", *common, *flags, folder=folder)


def log_of_worker(folder: Path) -> str:
    return (folder / "run" / "worker-0.log").read_text()


def test_one_bad_reward_costs_one_game_and_the_run_completes(programs: Programs, tmp_path: Path) -> None:
    """The 501st step of an environment comes after random play, which takes 400 steps of each."""
    once = "return float('nan') if env.steps == 501 and env.number == 2 else None"
    cluster = begun(programs, tmp_path, once, "--max-steps", "4000")
    assert cluster.wait() == 0, cluster.output
    log = log_of_worker(tmp_path)
    said = re.findall(r"games:Env: environment 2: it returned the reward (\S+); its game is cut off", log)
    assert said == ["nan"]
    status = last_row(tmp_path / "run" / METRICS, MetricsRow)
    assert status is not None
    assert (status.refused, status.ending) == ({}, "max_steps 4000 reached")
    assert status.global_steps >= 4000
    assert "died" not in cluster.output
