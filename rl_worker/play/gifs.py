"""
A GIF of a game every so many episodes, made by one worker while it trains: the first, as the server says.

The game is played apart from training, by an agent of its own with the newest weights: neither the training games nor
their random numbers notice.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from common.protocol.messages import Episode
from common.run_folder.paths import gif_name
from rl_worker.algorithms.algorithm import Algorithm
from rl_worker.environments.interface import Environments
from rl_worker.networks.flat_network import FlatNetwork
from rl_worker.play.recording import record_gif

log = logging.getLogger("rl-worker")


class GifRecorder:
    """Makes its agent and its environment, which has a screen, when there is a first GIF to make."""

    def __init__(
        self, make: Callable[[], tuple[Algorithm, Environments]], folder: Path, *, every_episodes: int, seed: int
    ) -> None:
        self._make = make
        self._made: tuple[Algorithm, Environments] | None = None
        self._folder = folder
        self._every_episodes = every_episodes
        self._seed = seed
        self._episodes = 0

    def add(self, episodes: Sequence[Episode], weights: Tensor, *, global_steps: int) -> None:
        """
        Games have ended: play one with these weights [P] and leave FOLDER/game-T.gif, if that makes enough of them.

        A disk that takes no GIF is told; training goes on.
        """
        before, self._episodes = self._episodes, self._episodes + len(episodes)
        if self._episodes // self._every_episodes == before // self._every_episodes:
            return
        with torch.random.fork_rng(devices=[]):
            agent, environments = self._made = self._made or self._make()
        FlatNetwork(agent.network).load(weights)
        agent.begin_unroll(global_steps)
        path = self._folder / gif_name(global_steps)
        try:
            record_gif(agent, environments, path, greedy=False, seed=self._seed + self._episodes)
        except OSError as error:
            log.warning("%s: cannot be written, training goes on without: %s", path, error.strerror or error)
