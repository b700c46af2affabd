"""
Custom hooks: each game's score goes into a file, and each checkpoint's size onto the log.

    rl-cluster --preset cartpole --hook examples.hooks:Notes --max-minutes 1
"""

import logging
import os
from pathlib import Path

from ps_rl import Game

log = logging.getLogger("notes")


class Notes:
    """Made without arguments: once in each worker, and once in the process that looks for checkpoints."""

    def __init__(self) -> None:
        self.games = Path(f"games-{os.getpid()}.csv")  # one file for each process

    def on_episode(self, game: Game) -> None:
        """A game of this worker has ended."""
        with self.games.open("a") as file:
            file.write(f"{game.global_steps},{game.worker},{game.score},{game.steps}\n")

    def on_checkpoint(self, path: Path) -> None:
        """A checkpoint is complete; copy it if you want to keep it."""
        log.info("%s has %d bytes", path.name, path.stat().st_size)
