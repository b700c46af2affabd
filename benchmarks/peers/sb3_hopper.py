"""
Hopper by Stable-Baselines3's SAC, with the settings of RL Zoo for MuJoCo: `sb3_hopper.py sac --rows FILE`.
"""

import sys

import torch
from peer_program import Rows, parse
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

LEARNING_STARTS = 10_000
STEPS = 1_000_000
EVERY = 50


class Recorder(BaseCallback):
    """Writes a row every EVERY steps, from the first update on: one follows each step."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self._rows = rows

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:
                self._rows.add_game(float(info["episode"]["r"]))
        if self.num_timesteps > LEARNING_STARTS and self.num_timesteps % EVERY == 1:
            self._rows.add_update(self.num_timesteps)
        return True


if __name__ == "__main__":
    flags = parse(sys.argv[1:], algorithms=["sac"])
    torch.set_num_threads(flags.threads)
    model = SAC("MlpPolicy", "Hopper-v5", learning_starts=LEARNING_STARTS, seed=flags.seed, device="cpu")
    model.learn(STEPS, callback=Recorder(Rows(flags.rows)))
