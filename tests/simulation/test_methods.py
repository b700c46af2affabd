"""Each method's gradient and its effect on the server's weights; a run that goes on over a restart of the server."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Environment, RunSpec
from rl_agent.environments.interface import Stepped
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import ActionSpace, DiscreteActions, ObservationSpace
from tests.rl_agent.experience import ACTIONS, DISCOUNT, FEATURES, Array, Experience, experience
from tests.rl_agent.written_out_a3c import LinearActorCritic, algorithm_s3
from tests.rl_agent.written_out_q import LinearActionValues, n_step_q, one_step_q, one_step_sarsa
from tests.simulation.one_thread import OneThread, train_to_the_end

UNROLL, ROWS, RATE = 5, 3, 0.01
GREEDY: dict[str, Any] = {"final_epsilons": [0.0], "epsilon_probabilities": [1.0], "epsilon_anneal_steps": 0}
ENDS = ("terminated", "truncated")
GOES_ON = [""] * 15
TERMINATES = ["", "terminated", "", "", "terminated"] * 3
IS_TRUNCATED = ["", "", "truncated", "", "truncated"] * 3
OF_Q = {"one_step_q": one_step_q, "one_step_sarsa": one_step_sarsa, "n_step_q": n_step_q}


class Replay:
    """Row k goes through what experience k went through, whatever the actions; ends are as they were."""

    observations = ObservationSpace((FEATURES,), np.dtype(np.float32))
    actions: ActionSpace = DiscreteActions(ACTIONS)
    count = ROWS
    description: dict[str, Any] = {}  # noqa: RUF012  as the protocol has it

    def __init__(self, *seen: Experience) -> None:
        self.taken: list[NDArray[np.int64]] = []
        self._seen = seen

    def reset(self, seed: int) -> Array:
        return self._rows("observations", 0)

    def step(self, actions: NDArray[Any]) -> Stepped:
        t = len(self.taken)
        self.taken.append(actions.copy())
        terminated, truncated = (np.array([one.ends[t] == end for one in self._seen]) for end in ENDS)
        final = self._rows("last_observations", t) if (terminated | truncated).any() else None
        rewards = self._rows("rewards", t)
        return Stepped(self._rows("observations", t + 1), rewards, terminated, truncated, final)

    def went_through(self, row: int, steps: range) -> Experience:
        """With the actions that were really taken, also in the step after the last one."""
        seen, first, last = self._seen[row], steps.start, steps.stop
        return Experience(
            observations=seen.observations[first : last + 1],
            actions=np.array([self.taken[t][row] for t in range(first, last + 1)]),
            rewards=seen.rewards[first:last],
            ends=seen.ends[first:last],
            last_observations=seen.last_observations[first:last],
        )

    def screen(self) -> NDArray[np.uint8]:
        raise NotImplementedError

    def close(self) -> None: ...

    def _rows(self, part: str, t: int) -> Any:
        return np.array([getattr(one, part)[t] for one in self._seen], dtype=np.float32)


def without_torsos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks are linear in the observation, as the written-out ones."""
    monkeypatch.setattr(
        "rl_agent.networks.networks.torso_for",
        lambda settings, observations, hidden: (nn.Sequential(), observations.shape[0]),
    )


def model_of(name: str, weights: Array) -> Any:
    """The written-out network with these weights [P]."""
    linear = LinearActorCritic(0) if name == "a3c" else LinearActionValues(0)
    split = np.split(weights, np.cumsum([ACTIONS * FEATURES, ACTIONS, FEATURES])[: 3 if name == "a3c" else 1])
    if isinstance(linear, LinearActorCritic):
        linear.policy_weight, linear.policy_bias = split[0].reshape(ACTIONS, FEATURES), split[1]
        linear.value_weight, linear.value_bias = split[2], float(split[3][0])
    else:
        linear.weight, linear.bias = split[0].reshape(ACTIONS, FEATURES), split[1]
    return linear


def expected_gradient(name: str, model: Any, target: Any, seen: Experience) -> Array:
    if name == "a3c":
        return algorithm_s3(model, seen, value_weight=0.5, entropy_weight=0.01)
    return OF_Q[name](model, target, seen)


@pytest.mark.parametrize("name", ["one_step_q", "one_step_sarsa", "n_step_q", "a3c"])
def test_the_update_that_reaches_the_server_is_that_of_the_papers_pseudocode(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three updates with sgd; θ⁻ is refreshed with the second one, at T = 30."""
    without_torsos(monkeypatch)
    algorithm: dict[str, Any] = {"name": name, "unroll_length": UNROLL, "discount": DISCOUNT}
    algorithm |= {"gradient_clip": 0.0, "reward_clip": 0.0}
    if name != "a3c":
        algorithm |= {"target_interval": 30, **GREEDY}
    run = run_from_dict(
        {
            "seed": 3,
            "algorithm": algorithm,
            "network": {"initialization": "normal"},
            "optimizer": {"name": "sgd"},
            "schedule": {"learning_rate": RATE},
            "budget": {"max_steps": 4 * UNROLL * ROWS},
        },
        source="test",
    )
    replay = Replay(*(experience(row, *ends * 2) for row, ends in enumerate((GOES_ON, TERMINATES, IS_TRUNCATED))))
    connection = OneThread(run)
    train_to_the_end(connection, replay)
    weights = [flat.double().numpy() for flat in connection.history]
    assert len(weights) == 5
    for push in range(3):
        model = model_of(name, weights[push])
        target = model_of(name, weights[0] if push < 2 else weights[2])
        steps = range(UNROLL * push, UNROLL * (push + 1))
        gradients = [expected_gradient(name, model, target, replay.went_through(row, steps)) for row in range(ROWS)]
        moved = weights[push + 1] - weights[push]
        np.testing.assert_allclose(moved, -RATE * np.sum(gradients, axis=0), rtol=1e-3, atol=2e-6)
        assert np.abs(moved).max() > 1e-3
    assert connection.training_run.progress.global_steps == 4 * UNROLL * ROWS


# -- a run that goes on -----------------------------------------------------------------------------------------------

METHODS: dict[str, dict[str, Any]] = {
    "n_step_q with rmsprop": {
        "algorithm": {"name": "n_step_q", "target_interval": 70, "epsilon_anneal_steps": 300, "unroll_length": 5},
        "optimizer": {"name": "rmsprop"},
        "schedule": {"learning_rate": 1e-2, "final_learning_rate": 1e-3, "anneal_steps": 500},
    },
    "a3c with adam": {"algorithm": {"name": "a3c", "unroll_length": 5}, "optimizer": {"name": "adam"}},
    "a3c with a memory": {
        "algorithm": {
            "name": "a3c",
            "unroll_length": 5,
            "epochs": 2,
            "minibatches": 2,
            "surrogate": "clip",
            "reward_normalization": "returns",
        },
        "network": {"lstm": 6, "hidden": [8], "normalization": "running"},
        "optimizer": {"name": "adam"},
    },
}


def trained(run: RunSpec, folder: Path, *, restarts_before: tuple[int, ...] = ()) -> OneThread:
    connection = OneThread(run, folder, restarts_before)
    environments = make_environments(Environment(id="CartPole-v1"), count=2)
    train_to_the_end(connection, environments, seed=5)
    environments.close()
    return connection


@pytest.mark.parametrize("restarts_before", [(16,), (1, 9, 10)], ids=["at half", "again and again"])
@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_a_run_that_is_resumed_ends_bit_for_bit_as_if_it_had_not_been_interrupted(
    method: dict[str, Any], restarts_before: tuple[int, ...], tmp_path: Path
) -> None:
    """The server is stopped, and another one goes on from its checkpoint file, while the worker lives on."""
    settings = {"seed": 4, "network": {"hidden": [8]}, "budget": {"max_steps": 300}} | method
    run = run_from_dict(settings, source="test")
    whole = trained(run, tmp_path)
    resumed = trained(run, tmp_path, restarts_before=restarts_before)
    assert (whole.lives, resumed.lives) == (1, 1 + len(restarts_before))
    assert all(map(torch.equal, resumed.history, whole.history)), "they part somewhere"
    expected, found = whole.training_run.weights.vectors(), resumed.training_run.weights.vectors()
    assert found.keys() == expected.keys() > {"weights"}
    assert ("target" in found) == bool(getattr(run.algorithm, "target_interval", 0))
    for name, vector in expected.items():
        assert torch.equal(found[name], vector), name
    assert len(resumed.history) == len(whole.history) > 30
    for part in ("version", "target_version"):
        assert getattr(resumed.training_run.weights, part) == getattr(whole.training_run.weights, part)
    assert resumed.training_run.progress.global_steps == whole.training_run.progress.global_steps == 300
    assert not torch.equal(expected["weights"], whole.history[0])
