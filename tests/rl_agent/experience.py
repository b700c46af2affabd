"""Experience of environments, in float64, for mathematics against slow written-out versions."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rl_agent.rollouts import CutOff, Trajectory

Array = NDArray[np.float64]
DISCOUNT = 0.9
FEATURES, ACTIONS = 3, 4


@dataclass(frozen=True)
class Experience:
    """The experience of one environment."""

    observations: Array  # [T + 1, F]: the last one only has a value
    actions: NDArray[np.int64]  # [T + 1]: the last one is not taken
    rewards: Array  # [T]
    ends: tuple[str, ...]  # of each step: "", "terminated" or "truncated"
    last_observations: Array  # [T, F]: of an episode that was truncated at that step


def experience(seed: int, *ends: str) -> Experience:
    chance = np.random.default_rng(seed)
    steps = len(ends)
    return Experience(
        observations=chance.normal(size=(steps + 1, FEATURES)),
        actions=chance.integers(ACTIONS, size=steps + 1),
        rewards=3 * chance.normal(size=steps),
        ends=ends,
        last_observations=chance.normal(size=(steps, FEATURES)),
    )


def trajectory_of(
    *environments: Experience,
    recorded: Callable[[Experience], dict[str, list[float]]] = lambda seen: {},
    commits_next_action: bool = False,
) -> Trajectory:
    """The trajectory that the collector would make of it, in float64; [T, B]."""
    steps = len(environments[0].rewards)
    ends = np.array([seen.ends for seen in environments]).T
    starts = np.concatenate([np.ones((1, len(environments)), dtype=np.bool_), ends != ""])
    notes = [recorded(seen) for seen in environments]
    cut_offs = []
    for t, row in enumerate(ends):
        if len(rows := np.flatnonzero(row == "truncated")):
            last = np.array([environments[b].last_observations[t] for b in rows])
            cut_offs.append(CutOff(t, torch.from_numpy(rows), torch.from_numpy(last), ()))
    return Trajectory(
        observations=torch.tensor(np.array([seen.observations for seen in environments]).swapaxes(0, 1)),
        starts=torch.from_numpy(starts),
        actions=torch.tensor(np.array([seen.actions for seen in environments]).T[: steps + commits_next_action]),
        rewards=torch.tensor(np.array([seen.rewards for seen in environments]).T),
        discounts=torch.tensor(np.where(ends == "terminated", 0.0, DISCOUNT)),
        continues=torch.tensor(np.where(ends == "", 1.0, 0.0)),
        recorded={name: torch.tensor([note[name] for note in notes], dtype=torch.float64).T for name in notes[0]},
        initial_state=(),
        final_state=(),
        cut_offs=tuple(cut_offs),
    )
