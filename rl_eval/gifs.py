"""
A GIF of a game every N episodes, recorded during training by one worker, which the server designates as the first.

A separate agent with the newest weights plays the game in a separate environment, so that training's games and random
numbers are unaffected.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from ps_common.errors import PsRlError, RequestRefused, RunEnded, ServerUnreachable
from ps_common.program.reasons import reason_of
from ps_common.protocol.messages import Episode
from ps_common.run_folder.paths import gif_name
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.interface import Environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_eval.recording import record_gif

log = logging.getLogger("rl-worker")


class GifRecorder:
    """Records GIFs; `make` is called before the first one, and makes an agent and an environment with a screen."""

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
        Count ended episodes; after each `every_episodes` of them record a game with weights [P] to FOLDER/game-T.gif.

        If the file cannot be written, or the game not be played or drawn, a warning is logged and training continues.
        """
        before, self._episodes = self._episodes, self._episodes + len(episodes)
        if self._episodes // self._every_episodes == before // self._every_episodes:
            return
        path = self._folder / gif_name(global_steps)
        try:
            with torch.random.fork_rng(devices=[]):
                agent, environments = self._made = self._made or self._make()
            FlatNetwork(agent.network).load(weights)
            agent.begin_unroll(global_steps)
            record_gif(agent, environments, path, greedy=False, seed=self._seed + self._episodes)
        except (RunEnded, ServerUnreachable, RequestRefused):  # each step looks after the run
            raise
        except OSError as error:
            log.warning("%s: cannot be written, training continues without it: %s", path, error.strerror or error)
        except Exception as error:
            why = error if isinstance(error, PsRlError) else reason_of(error)
            log.warning("%s: no game was recorded, training continues without it: %s", path, why)
