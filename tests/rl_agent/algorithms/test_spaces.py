"""
Known-answer tasks for every cell of {mask} × {Dict} × {MultiDiscrete, Box} × {LSTM, feed-forward}, and for the methods
of action values with masks and a Dict. In one thread, with fixed seeds; the best score of each is 1 a game.
"""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete

from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from rl_eval.games import play
from tests.rl_agent.algorithms.test_learning import learned

SIDE = 8  # pixels
pytestmark = pytest.mark.timeout(300)  # ten seconds each on two idle cores
UPDATES = 300
OPTIONS = 3  # of each choice: 0 and 1 by a bit; 2 is wrong, or forbidden where there are masks
GOAL = 0.5  # of real actions: ± this, by a bit


class TwoBits(gymnasium.Env[Any, Any]):
    """
    Two bits decide which action is right. A Dict shows one as the bright half of an image and one as a number; else
    both are numbers. With `remembers` they are shown one step before the action that counts.

    Masks forbid option 2 of each choice, and the second real number: an action that a mask forbids ends the test.
    """

    def __init__(self, *, masks: bool, is_dict: bool, kind: str, remembers: bool) -> None:
        self._masks, self._is_dict, self._kind, self._remembers = masks, is_dict, kind, remembers
        self.action_space = {
            "choices": MultiDiscrete([OPTIONS, OPTIONS]),
            "numbers": Box(-1, 1, (2,), np.float32),
            "one": Discrete(2 * OPTIONS),
        }[kind]
        size = {"choices": 2 * OPTIONS, "numbers": 2, "one": 2 * OPTIONS}[kind]
        numbers = Box(-1, 1, (2,), np.float32)
        seen: dict[str, Any] = {"camera": Box(0, 255, (SIDE, SIDE, 1), np.uint8), "bit": numbers} if is_dict else {}
        if masks and is_dict:
            seen["action_mask"] = MultiBinary(size)
        self.observation_space = Dict(seen) if is_dict else numbers

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._bits = self.np_random.integers(0, 2, 2)
        self._step = 0
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._check(action)
        self._step += 1
        ended = self._step == 1 + self._remembers
        return self._observation(), self._score(action) if ended else 0.0, ended, False, self._info()

    def _score(self, action: Any) -> float:
        if self._kind == "choices":
            return float(np.mean(np.asarray(action) == self._bits))
        if self._kind == "one":
            return float(action == 3 * self._bits[0] + self._bits[1])
        counted = 1 if self._masks else 2
        return float(1 - np.abs(action - GOAL * (2 * self._bits - 1))[:counted].mean())

    def _check(self, action: Any) -> None:
        if self._masks:
            forbidden = action[1] != 0 if self._kind == "numbers" else np.any(np.asarray(action) % OPTIONS == 2)
            assert not forbidden, f"{action} is forbidden"

    def _mask(self) -> Any:
        return np.array([1, 0] if self._kind == "numbers" else [1, 1, 0] * 2, np.int8)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask()} if self._masks and not self._is_dict else {}

    def _observation(self) -> Any:
        shown = (2 * self._bits - 1) * (self._step == 0)
        if not self._is_dict:
            return shown.astype(np.float32)
        camera = np.zeros((SIDE, SIDE, 1), np.uint8)
        if shown.any():
            camera[:, SIDE // 2 * self._bits[0] :][:, : SIDE // 2] = 255
        seen = {"camera": camera, "bit": np.array([0, shown[1]], np.float32)}
        return seen | ({"action_mask": self._mask()} if self._masks else {})


NIGHTLY = pytest.mark.nightly  # `make spaces` runs all cells
CELLS = [
    pytest.param(False, False, id="free vector", marks=NIGHTLY),
    pytest.param(False, True, id="free Dict", marks=NIGHTLY),
    pytest.param(True, False, id="masked vector", marks=NIGHTLY),
    pytest.param(True, True, id="masked Dict"),
]


@pytest.fixture
def task() -> Any:
    """Makes environments of a cell for the length of a test."""

    def make(count: int, **cell: Any) -> Any:
        gymnasium.registry.pop("TwoBits-v0", None)
        gymnasium.register("TwoBits-v0", lambda: TwoBits(**cell), disable_env_checker=True)
        return make_environments(Environment(id="TwoBits-v0"), count=count)

    yield make
    gymnasium.registry.pop("TwoBits-v0", None)


def score_of(agent: Any, environments: Any) -> float:
    scores = [game.score for game in play(agent, environments, episodes=100, greedy=True, seed=1)]
    environments.close()
    return float(np.mean(scores))


@pytest.mark.parametrize(
    ("kind", "lstm"),
    [
        pytest.param("choices", 0, id="MultiDiscrete-feed-forward"),
        pytest.param("choices", 16, id="MultiDiscrete-LSTM", marks=NIGHTLY),
        pytest.param("numbers", 0, id="Box-feed-forward", marks=NIGHTLY),
        pytest.param("numbers", 16, id="Box-LSTM", marks=NIGHTLY),
    ],
)
@pytest.mark.parametrize(("masks", "is_dict"), CELLS)
def test_every_cell_is_solved(task: Any, masks: bool, is_dict: bool, kind: str, lstm: int) -> None:
    cell = {"masks": masks, "is_dict": is_dict, "kind": kind, "remembers": lstm > 0}
    environments = task(16, **cell)
    agent = learned(
        environments,
        steps=16 * 8 * UPDATES,
        learning_rate=0.01,
        algorithm={"name": "a3c", "unroll_length": 8, "discount": 0.9, "loss": "mean", "entropy_weight": 0.003},
        network={"hidden": [16], "lstm": lstm},
    )
    environments.close()
    assert score_of(agent, task(10, **cell)) >= 0.9


@pytest.mark.parametrize("is_dict", [pytest.param(False, id="mask in info", marks=NIGHTLY), True])
@pytest.mark.parametrize(
    "name", [pytest.param("one_step_q", marks=NIGHTLY), pytest.param("one_step_sarsa", marks=NIGHTLY), "n_step_q"]
)
def test_action_values_with_masks(task: Any, name: str, is_dict: bool) -> None:
    cell = {"masks": True, "is_dict": is_dict, "kind": "one", "remembers": False}
    environments = task(16, **cell)
    exploring = {"final_epsilons": [0.3], "epsilon_probabilities": [1.0], "epsilon_anneal_steps": 0}
    agent = learned(
        environments,
        steps=16 * 8 * UPDATES,
        learning_rate=0.01,
        algorithm={"name": name, "unroll_length": 8, "target_interval": 300, "loss": "mean", **exploring},
        network={"hidden": [16]},
    )
    environments.close()
    assert score_of(agent, task(10, **cell)) == 1.0
