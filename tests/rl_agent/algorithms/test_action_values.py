"""One-step Q, one-step Sarsa and n-step Q against the paper's pseudocode written out, and how they play."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ps_common.settings import run_spec
from rl_agent.agent import method_of
from rl_agent.algorithms.action_values import ActionValueLearner
from rl_agent.rollouts import CutOff, Trajectory
from tests.rl_agent.experience import ACTIONS, DISCOUNT, FEATURES, Array, Experience, experience, trajectory_of
from tests.rl_agent.written_out_q import LinearActionValues, n_step_q, one_step_q, one_step_sarsa

MODEL, TARGET = LinearActionValues(seed=0), LinearActionValues(seed=1)
GOES_ON = experience(1, "", "", "", "", "")
TERMINATED = experience(2, "", "terminated", "", "", "terminated")
TRUNCATED = experience(3, "", "", "truncated", "", "truncated")
GREEDY = {"final_epsilons": (0.0,), "epsilon_probabilities": (1.0,), "epsilon_anneal_steps": 0}
WrittenOut = Callable[[LinearActionValues, LinearActionValues, Experience], Array]
METHODS: dict[type[run_spec.ActionValuesSettings], WrittenOut] = {
    run_spec.OneStepQSettings: one_step_q,
    run_spec.OneStepSarsaSettings: one_step_sarsa,
    run_spec.NStepQSettings: n_step_q,
}
each_method = pytest.mark.parametrize(("method", "written_out"), METHODS.items(), ids=[m.__name__ for m in METHODS])
each_end = pytest.mark.parametrize(
    "seen", [GOES_ON, TERMINATED, TRUNCATED], ids=["goes on", "terminated inside", "truncated inside"]
)


def algorithm(method: type[run_spec.ActionValuesSettings], *, environments: int = 1, **settings: Any) -> Any:
    chosen = method(**{"discount": DISCOUNT, "reward_clip": 0.0, **GREEDY, **settings})
    made: Any = method_of(chosen)(MODEL.as_network(), chosen, device=torch.device("cpu"), seed=0)
    if made.target_network is not None:
        made.target_network.load_state_dict(TARGET.as_network().state_dict())
    made.initial_state(environments)
    return made


def unroll_of(learner: ActionValueLearner, *environments: Experience) -> Trajectory:
    return trajectory_of(*environments, commits_next_action=learner.commits_next_action)


def gradient_of(learner: Any, trajectory: Trajectory) -> Tensor:
    """The gradient [P] of the only batch of a trajectory."""
    (batch,) = learner.batches(trajectory)
    gradients = torch.autograd.grad(learner.loss(batch).total, list(learner.network.parameters()))
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def assert_gradient(found: Tensor, expected: Array) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


@each_end
@each_method
def test_the_gradient_is_that_of_the_papers_pseudocode(
    method: type[run_spec.ActionValuesSettings], written_out: WrittenOut, seen: Experience
) -> None:
    learner = algorithm(method)
    assert_gradient(gradient_of(learner, unroll_of(learner, seen)), written_out(MODEL, TARGET, seen))


@each_method
def test_the_gradient_of_many_environments_is_the_sum_of_their_gradients(
    method: type[run_spec.ActionValuesSettings], written_out: WrittenOut
) -> None:
    many = (GOES_ON, TERMINATED, TRUNCATED)
    learner = algorithm(method, environments=3)
    trajectory = unroll_of(learner, *many)
    expected = np.sum([written_out(MODEL, TARGET, one) for one in many], axis=0)
    assert_gradient(gradient_of(learner, trajectory), expected)
    assert_gradient(gradient_of(algorithm(method, environments=3, loss="mean"), trajectory) * 15, expected)


@each_end
@pytest.mark.parametrize("trace", [0.0, 0.65, 1.0])
def test_q_lambda_mixes_what_came_with_what_was_hoped_for(seen: Experience, trace: float) -> None:
    learner = algorithm(run_spec.NStepQSettings, q_lambda=trace)
    assert_gradient(gradient_of(learner, unroll_of(learner, seen)), n_step_q(MODEL, TARGET, seen, trace=trace))


@each_method
def test_rewards_are_clipped_and_scaled_for_the_learner_alone(
    method: type[run_spec.ActionValuesSettings], written_out: WrittenOut
) -> None:
    learner = algorithm(method, reward_clip=1.0, reward_scale=0.5)
    trajectory = unroll_of(learner, GOES_ON)
    true = trajectory.rewards.clone()
    assert true.abs().max() > 1
    clipped = Experience(**vars(GOES_ON) | {"rewards": np.clip(GOES_ON.rewards, -1, 1) * 0.5})
    assert_gradient(gradient_of(learner, trajectory), written_out(MODEL, TARGET, clipped))
    assert torch.equal(trajectory.rewards, true)


def test_what_minibatches_learn_from_is_every_step_once_an_epoch() -> None:
    learner = algorithm(run_spec.NStepQSettings, environments=3, epochs=2, minibatches=4)
    trajectory = unroll_of(learner, GOES_ON, TERMINATED, TRUNCATED)
    (whole,) = algorithm(run_spec.NStepQSettings, environments=3).batches(trajectory)
    expected = sorted(zip(whole.observations.tolist(), whole.actions.tolist(), whole.targets.tolist(), strict=True))
    batches = list(learner.batches(trajectory))
    assert [len(batch.targets) for batch in batches] == [4, 4, 4, 3] * 2
    orders = []
    for epoch in (batches[:4], batches[4:]):
        steps = [(x, a, y) for b in epoch for x, a, y in zip(*(v.tolist() for v in vars(b).values()), strict=True)]
        assert sorted(steps) == expected
        orders.append(steps)
    assert orders[0] != orders[1]


def test_sarsa_after_a_truncation_hopes_for_what_its_policy_would_have_done() -> None:
    """With ε = 1 that is each action equally often: the mean target is that of the mean of Q."""
    rows = 4000
    learner = algorithm(
        run_spec.OneStepSarsaSettings, environments=rows, final_epsilons=(1.0,), epsilon_probabilities=(1.0,)
    )
    last = torch.from_numpy(TRUNCATED.last_observations[2]).expand(rows, -1)
    one = unroll_of(learner, *[experience(5, "truncated")] * rows)
    trajectory = Trajectory(**vars(one) | {"cut_offs": (CutOff(0, torch.arange(rows), last, ()),)})
    (batch,) = learner.batches(trajectory)
    hoped = (batch.targets - trajectory.rewards[0]) / DISCOUNT
    assert len(hoped.unique()) == ACTIONS
    assert float(hoped.mean()) == pytest.approx(float(TARGET.q(last[0].numpy()).mean()), abs=0.1)


# -- play -------------------------------------------------------------------------------------------------------------


class FixedValues(nn.Module):
    """The second action is the best one, whatever is seen."""

    def forward(self, observations: Tensor) -> Tensor:
        return torch.tensor([0.0, 3.0, 1.0, 2.0]).expand(len(observations), -1)


def shares(learner: Any, rows: int, *, global_steps: int, greedy: bool = False) -> list[float]:
    """How often each action is taken."""
    learner.begin_unroll(global_steps)
    starts = torch.ones(rows, dtype=torch.bool)
    actions = learner.act(torch.zeros(rows, FEATURES), (), starts, greedy=greedy).actions
    taken: list[float] = (actions.bincount(minlength=ACTIONS) / rows).tolist()
    return taken


@each_method
def test_play_is_greedy_but_for_the_share_of_chance(
    method: type[run_spec.ActionValuesSettings], written_out: WrittenOut
) -> None:
    settings = method(final_epsilons=(0.2,), epsilon_probabilities=(1.0,), epsilon_anneal_steps=1000)
    network: Any = FixedValues()
    learner: Any = method_of(settings)(network, settings, device=torch.device("cpu"), seed=0)
    learner.initial_state(20_000)
    for global_steps, epsilon in ((0, 1.0), (500, 0.6), (1000, 0.2), (10**9, 0.2)):
        expected = np.full(ACTIONS, epsilon / ACTIONS) + np.eye(ACTIONS)[1] * (1 - epsilon)
        np.testing.assert_allclose(shares(learner, 20_000, global_steps=global_steps), expected, atol=0.015)
    assert shares(learner, 20_000, global_steps=0, greedy=True) == [0, 1, 0, 0]
