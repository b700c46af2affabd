"""
Updates of Stable-Baselines3's SAC on remembered steps of Hopper: a process that is measured, with that side's Python.

    python -m benchmarks.dear.sb3_update THREADS
"""

import sys

import torch
from stable_baselines3 import SAC

from benchmarks.command_loop import serve_commands

STEPS = 10_000  # that are remembered

if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[1]))
    model = SAC(
        "MlpPolicy", "Hopper-v5", learning_rate=3e-4, batch_size=256, learning_starts=STEPS + 1, seed=1,
        policy_kwargs={"net_arch": [256, 256]},
    )  # fmt: skip
    model.learn(STEPS)
    serve_commands(lambda: model.train(gradient_steps=1, batch_size=256))
