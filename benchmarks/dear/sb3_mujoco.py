"""
Stable-Baselines3's SAC on an environment of MuJoCo for so many steps: run by its own Python.

    python sb3_mujoco.py ENVIRONMENT SEED STEPS LEARNING_STARTS THREADS GREEDY_GAMES BEGAN

The last line of output is JSON: each training game as [steps, minutes, score], the steps and minutes of the whole, and
the scores of greedy games of the last weights. Minutes count from BEGAN, in seconds since 1970.
"""

import json
import sys
import time

import gymnasium
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

SEED_OF_GAMES = 1_000_000


class Games(BaseCallback):
    """The games of training."""

    def __init__(self, began: float) -> None:
        super().__init__()
        self.began = began
        self.rows: list[tuple[int, float, float]] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self.rows.append((self.num_timesteps, (time.time() - self.began) / 60, float(info["episode"]["r"])))
        return True


if __name__ == "__main__":
    environment = sys.argv[1]
    seed, steps, learning_starts, threads, greedy_games = map(int, sys.argv[2:7])
    torch.set_num_threads(threads)
    model = SAC(
        "MlpPolicy", gymnasium.make(environment), learning_rate=3e-4, buffer_size=1_000_000, batch_size=256, tau=0.005,
        gamma=0.99, train_freq=1, gradient_steps=1, learning_starts=learning_starts, ent_coef="auto", seed=seed,
        policy_kwargs={"net_arch": [256, 256]},
    )  # fmt: skip
    games = Games(float(sys.argv[7]))
    model.learn(steps, callback=games)
    minutes = (time.time() - games.began) / 60
    played = Monitor(gymnasium.make(environment))
    played.reset(seed=SEED_OF_GAMES)
    scores, _ = evaluate_policy(model, played, greedy_games, deterministic=True, return_episode_rewards=True)
    found = {"games": games.rows, "steps": model.num_timesteps, "minutes": minutes, "greedy": scores}
    print(json.dumps(found, default=float))
