"""
Stable-Baselines3's SAC on the slow simulator, until ten games have the goal in the mean: run by its own Python.

    python sb3_sac.py SEED SIMULATORS UPDATES GOAL MOST_MINUTES

Settings are those of RL Zoo for Pendulum-v1 with the network of the other side. Several simulators are stepped side by
side, in processes.
"""

import json
import sys
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from slow import make
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecMonitor


class UntilGoal(BaseCallback):
    """Ends when the mean of the last ten games reaches the goal."""

    def __init__(self, goal: float, most_seconds: float) -> None:
        super().__init__()
        self.goal, self.end = goal, time.monotonic() + most_seconds
        self.games: deque[float] = deque(maxlen=10)
        self.reached = False

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.games.append(info["episode"]["r"])
        self.reached = len(self.games) == 10 and bool(sum(self.games) / 10 >= self.goal)
        return not self.reached and time.monotonic() < self.end


if __name__ == "__main__":
    began = time.time()
    seed, count, updates = map(int, sys.argv[1:4])
    goal, most_minutes = map(float, sys.argv[4:])
    torch.set_num_threads(1)
    environments = VecMonitor(DummyVecEnv([make]) if count == 1 else SubprocVecEnv([make] * count))
    model = SAC(
        "MlpPolicy", environments, learning_rate=1e-3, learning_starts=500, batch_size=128,
        gradient_steps=updates * count,
        seed=seed, policy_kwargs={"net_arch": [64, 64]},
    )  # fmt: skip
    until = UntilGoal(goal, 60 * most_minutes)
    model.learn(10**9, callback=until)
    minutes = (time.time() - began) / 60
    print(json.dumps({"reached": until.reached, "minutes": minutes, "steps": model.num_timesteps}))
