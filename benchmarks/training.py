"""
Training against nothing but stepping: a preset with two workers, and ALE's vector environment alone on two threads.

As a program: training.py alone ID is the environment without a learner.
"""

import sys

import numpy as np
from ale_py.vector_env import AtariVectorEnv

from benchmarks.command_loop import serve_commands
from common import messages
from common.zmq_request import ask

ENVIRONMENTS = 16


def environment_alone(size: str) -> None:
    """Random actions; 16 environments on two threads, frames as the worker sees them."""
    env = AtariVectorEnv(
        "pong",
        num_envs=ENVIRONMENTS,
        num_threads=2,
        img_height=int(size),
        img_width=int(size),
        reward_clipping=False,
    )
    env.reset(seed=0)
    random = np.random.default_rng(0)
    serve_commands(lambda: env.step(random.integers(0, 6, ENVIRONMENTS)) and None)


def steps_counted(server: str) -> int:
    """T of a live server."""
    reply, _ = ask(server, messages.StatusRequest(request=1), timeout_seconds=30)
    assert isinstance(reply, messages.StatusReply)
    return reply.status.global_steps


if __name__ == "__main__":
    environment_alone(sys.argv[2])
