"""Each method learns tasks whose best possible score is known. In one thread, with fixed seeds."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ps_common.settings.run_settings import run_from_dict
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.interface import Environments, Stepped
from rl_agent.environments.spaces import ActionSpace, DiscreteActions, ObservationSpace
from rl_eval.games import play
from tests.rl_agent.scripted_environments import Game, OneState, Target
from tests.simulation.one_thread import OneThread, train_to_the_end

DISCOUNT = 0.9
ADAM = {"name": "adam"}


def learned(environments: Environments, *, steps: int, learning_rate: float, **sections: Any) -> Algorithm:
    """The algorithm after a run of so many steps; its learning rate falls to a tenth."""
    settings = {
        "seed": 1,
        "environment": {"envs": environments.count},
        "optimizer": ADAM,
        "schedule": {
            "learning_rate": learning_rate,
            "final_learning_rate": learning_rate / 10,
            "anneal_steps": steps,
        },
        "budget": {"max_steps": steps},
    }
    return train_to_the_end(OneThread(run_from_dict(settings | sections, source="test")), environments)


# -- a state under a time limit ---------------------------------------------------------------------------------------

OF_Q = {"final_epsilons": [0.5], "epsilon_probabilities": [1.0], "epsilon_anneal_steps": 0, "target_interval": 40}
CASES = [
    pytest.param("one_step_q", 1, OF_Q, 0, id="one_step_q"),
    pytest.param("one_step_sarsa", 3, OF_Q, 0, id="one_step_sarsa"),
    pytest.param("n_step_q", 3, {**OF_Q, "q_lambda": 0.65, "target_interval": 0}, 0, id="n_step_q with lambda"),
    pytest.param("a3c", 1, {}, 0, id="a3c of one environment"),
    pytest.param("a3c", 3, {"off_policy": "vtrace"}, 0, id="a3c with V-trace"),
    pytest.param("a3c", 2, {"value_weight": 1.0, "reward_scale": 0.1}, 4, id="a3c with an LSTM"),
]


@pytest.mark.parametrize(("name", "count", "settings", "lstm"), CASES)
def test_a_state_under_a_time_limit_is_worth_what_it_is_worth_without(
    name: str, count: int, settings: dict[str, Any], lstm: int
) -> None:
    """Reward 1 at every step, for ever: 1 / (1 − γ) = 10, though every episode is cut off after five steps."""
    games = OneState(*[[Game((1.0,) * 5, "truncated")]] * count)
    algorithm = {"name": name, "unroll_length": 5, "discount": DISCOUNT, "loss": "mean", "gradient_clip": 0, **settings}
    network = {"hidden": [4], "lstm": lstm}
    agent = learned(games, steps=5 * count * 400, learning_rate=0.05, algorithm=algorithm, network=network)
    worth = 10.0 * settings.get("reward_scale", 1.0)
    assert value_of_the_state(agent) == pytest.approx([worth] * 5, rel=0.04)


@torch.no_grad()
def value_of_the_state(agent: Any) -> list[float]:
    """In each step of an episode: the memory differs, the observation does not."""
    state, values = agent.initial_state(1), []
    for step in range(5):
        decision = agent.act(torch.ones(1, 1), state, torch.tensor([step == 0]))
        state = decision.state
        best = decision.recorded["values"] if "values" in decision.recorded else agent.network(torch.ones(1, 1)).max()
        values.append(float(best))
    return values


# -- a task that needs a memory ---------------------------------------------------------------------------------------


class TMaze:
    """
    A corridor with a sign at its start and a junction at its end; the reward is 1 for the way that the sign showed.

    Observations: the sign (±1, only at the start), and whether this is the junction. Signs take turns, so that an agent
    that does not remember the sign scores exactly ½ over an even number of games.
    """

    LENGTH = 4  # steps, the last one at the junction
    observations = ObservationSpace((2,), np.dtype(np.float32))
    actions: ActionSpace = DiscreteActions(2)

    def __init__(self, count: int) -> None:
        self.count = count
        self.description: dict[str, Any] = {}
        self._step = self._game = 0

    def reset(self, seed: int) -> NDArray[np.float32]:
        self._step = self._game = 0
        return self._observations()

    def step(self, actions: NDArray[Any]) -> Stepped:
        ended = self._step == self.LENGTH - 1
        rewards = (ended & (actions == self._signs())).astype(np.float32)
        self._step = 0 if ended else self._step + 1
        self._game += ended
        none = np.zeros(self.count, dtype=np.bool_)
        seen = self._observations()
        return Stepped(seen, rewards, none | ended, none, seen if ended else None)

    def screen(self) -> NDArray[np.uint8]:
        raise NotImplementedError

    def close(self) -> None: ...

    def _signs(self) -> NDArray[np.int64]:
        return (np.arange(self.count) + self._game) % 2

    def _observations(self) -> NDArray[np.float32]:
        sign = (2 * self._signs() - 1) * (self._step == 0)
        return np.stack([sign, np.full(self.count, self._step == self.LENGTH - 1)], axis=1).astype(np.float32)


@pytest.mark.parametrize(("lstm", "solves"), [(16, True), (0, False)], ids=["LSTM", "feed-forward"])
def test_a_maze_that_needs_a_memory_is_solved_with_one_and_cannot_be_without(lstm: int, solves: bool) -> None:
    algorithm = {"name": "a3c", "unroll_length": 6, "discount": DISCOUNT, "loss": "mean", "entropy_weight": 0.01}
    agent = learned(
        TMaze(16), steps=16 * 6 * 300, learning_rate=0.01, algorithm=algorithm, network={"hidden": [8], "lstm": lstm}
    )
    scores = [game.score for game in play(agent, TMaze(10), episodes=100, greedy=True, seed=0)]
    if solves:
        assert np.mean(scores) == 1.0
    else:
        assert np.mean(scores) == 0.5, "the best that is possible, and the worst"


# -- real vectors -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "separate"), [([0.3], False), ([-0.4, 0.2], True)], ids=["one number", "two numbers, separate torsos"]
)
def test_the_best_of_all_real_actions_is_found(goal: list[float], separate: bool) -> None:
    """The reward is −|a − goal|²: the mean of the policy goes there, and its deviation shrinks."""
    algorithm = {"name": "a3c", "unroll_length": 4, "entropy_weight": 1e-3, "loss": "mean", "reward_clip": 0.0}
    network = {"hidden": [8], "separate": separate}
    agent = learned(
        Target(goal, count=16), steps=16 * 4 * 400, learning_rate=0.015, algorithm=algorithm, network=network
    )
    best = [game.score for game in play(agent, Target(goal, count=4), episodes=4, greedy=True, seed=0)]
    assert np.mean(best) > -0.02
    sampled = [game.score for game in play(agent, Target(goal, count=100), episodes=100, greedy=False, seed=0)]
    assert np.mean(sampled) > -0.15 * len(goal)
