"""
Updates from a replay memory: when they are due, and what they are made of.

Updates are owed per environment step (`replay_ratio`), whatever an unroll's length is. Each worker owes them for its
own steps, so the ratio holds over all workers. Nothing is owed before learning starts, at T = `learning_starts`.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ps_common.settings.run_spec import Method, Replay
from rl_agent.networks.running_statistics import ReturnNormalization
from rl_agent.replay.replay_memory import Drawn, Prioritized, ReplayMemory
from rl_agent.rollouts import Trajectory, learner_rewards

MOST_OWED = 1000.0  # updates, where nothing can be drawn yet


class ReplayedUpdates:
    """The replay memory of one worker, and its updates that are due."""

    def __init__(self, settings: Replay, *, frames: int, seed: int) -> None:
        """`frames`: of which an image consists along its first axis."""
        self.global_steps = 0  # T
        self._settings = settings
        self._frames = frames
        self._seed = seed
        self._owed = 0.0
        self._steps = self._updates = 0  # since learning started
        self._memory = self._empty(None, "", lambda _: None)

    def keep_in(self, path: str, run: str, report: Callable[[str], None]) -> None:
        """Before the first unroll: have the memory in this file, for this run. `report` gets sentences for the log."""
        self._memory = self._empty(path, run, report)

    @property
    def explores_at_random(self) -> bool:
        """Whether learning has not started yet."""
        return self.global_steps < self._settings.learning_starts

    def remember(self, trajectory: Trajectory) -> None:
        """Take the steps of an unroll."""
        self._memory.add(trajectory)

    def due(
        self, steps: int, *, discount: float, rewards: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    ) -> Iterator[Drawn]:
        """The batches that these steps owe."""
        if self.explores_at_random:
            return
        self._steps += steps
        self._owed = min(self._owed + steps * self._settings.replay_ratio, MOST_OWED)
        while self._owed >= 1:
            drawn = self._memory.draw(self._settings.batch_size, discount=discount, rewards=rewards)
            if drawn is None:
                return
            self._owed -= 1
            self._updates += 1
            yield drawn

    def batches(self, trajectory: Trajectory, settings: Method, returns: ReturnNormalization | None) -> Iterator[Drawn]:
        """Remember an unroll; then the batches that it owes, their rewards clipped, normalized and scaled."""

        def rewards(seen: NDArray[np.float32]) -> NDArray[np.float32]:
            return learner_rewards(torch.from_numpy(seen), settings, returns).numpy()

        self.remember(trajectory)
        return self.due(trajectory.steps, discount=settings.discount, rewards=rewards)

    def learned(self, drawn: Drawn, errors: Tensor) -> None:
        """The absolute errors [N] of drawn steps, which decide how often they are drawn again."""
        self._memory.set_priorities(drawn, errors.cpu())

    def meters(self, drawn: Drawn) -> dict[str, Tensor]:
        """How full the memory is, updates per step so far, and how many steps ago the drawn ones were made."""
        ratio = self._updates / max(1, self._steps)
        found = {"replay_fill": self._memory.fill, "replay_ratio": ratio, "replay_age": drawn.age}
        return {name: torch.tensor(value) for name, value in found.items()}

    def _empty(self, path: str | None, run: str, report: Callable[[str], None]) -> ReplayMemory:
        settings = self._settings
        exponent = settings.priority_exponent
        return ReplayMemory(
            most_steps=settings.replay_steps,
            most_mib=settings.replay_mib,
            frames=self._frames,
            n_step=settings.n_step,
            prioritized=Prioritized(exponent, settings.priority_correction) if exponent else None,
            path=path,
            run=run,
            seed=self._seed,
            report=report,
        )
