"""
A custom hook: each game's score goes into a file.

    rl-cluster --preset cartpole --hook examples.hooks:Notes --max-minutes 1
"""

import os
from pathlib import Path

from ps_rl import Game


class Notes:
    """Made without arguments, once in each worker."""

    def __init__(self) -> None:
        self.games = Path(f"games-{os.getpid()}.csv")  # one file for each process

    def on_episode(self, game: Game) -> None:
        """A game of this worker has ended."""
        with self.games.open("a") as file:
            file.write(f"{game.global_steps},{game.worker},{game.score},{game.steps}\n")
