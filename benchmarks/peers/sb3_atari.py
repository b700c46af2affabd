"""
Pong by Stable-Baselines3, with the settings of RL Zoo for Atari: `sb3_atari.py ppo|a2c --rows FILE`.

Environments are stepped in this one process (DummyVecEnv): on two cores that is faster than a process for each.
"""

import sys
from collections.abc import Callable
from typing import Any

import ale_py
import gymnasium
import torch
from peer_program import Rows, parse
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from stable_baselines3.common.vec_env import VecFrameStack

STEPS = 10_000_000  # over which a schedule falls to 0


def falling(first: float) -> Callable[[float], float]:
    return lambda left: first * left


SETTINGS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "ppo": (
        PPO,
        8,
        {
            "n_steps": 128,
            "n_epochs": 4,
            "batch_size": 256,
            "learning_rate": falling(2.5e-4),
            "clip_range": falling(0.1),
            "vf_coef": 0.5,
            "ent_coef": 0.01,
        },
    ),
    "a2c": (
        A2C,
        16,
        {
            "ent_coef": 0.01,
            "vf_coef": 0.25,
            "policy_kwargs": {"optimizer_class": RMSpropTFLike, "optimizer_kwargs": {"eps": 1e-5}},
        },
    ),
}


class Recorder(BaseCallback):
    """Writes a row before each rollout but the first: what was collected before has been learned then."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self._rows = rows

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            self._rows.add_update(self.num_timesteps)

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self._rows.add_game(float(info["episode"]["r"]))
        return True


def main() -> None:
    flags = parse(sys.argv[1:], algorithms=list(SETTINGS))
    torch.set_num_threads(flags.threads)
    gymnasium.register_envs(ale_py)
    algorithm, environments, settings = SETTINGS[flags.algorithm]
    sticky = {"action_repeat_probability": flags.sticky}
    games = make_atari_env("PongNoFrameskip-v4", n_envs=environments, seed=flags.seed, wrapper_kwargs=sticky)
    model = algorithm("CnnPolicy", VecFrameStack(games, 4), seed=flags.seed, device="cpu", **settings)
    model.learn(STEPS, callback=Recorder(Rows(flags.rows)))


if __name__ == "__main__":
    main()
