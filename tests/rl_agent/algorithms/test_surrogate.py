"""The clipped surrogate of A3C: what its gradient is, and what its minibatches are."""

import numpy as np
import pytest
import torch
from torch import Tensor

from ps_common.settings.run_spec import A3CSettings as Settings
from rl_agent.algorithms import a3c
from rl_agent.algorithms.a3c import A3C, PolicyBatch
from rl_agent.networks.policies import Categorical
from rl_agent.rollouts import Trajectory
from tests.rl_agent.experience import ACTIONS, DISCOUNT, Experience, experience, trajectory_of
from tests.rl_agent.written_out_a3c import LinearActorCritic

MODEL = LinearActorCritic(seed=0)
WEIGHT = 0.75
PARTS = [field for field in PolicyBatch.__dataclass_fields__ if field != "state"]


def algorithm(**settings: object) -> A3C:
    chosen = {"discount": DISCOUNT, "reward_clip": 0.0, "clip_range": 0.2, "surrogate": "clip"} | settings
    policy = Categorical(ACTIONS)
    return A3C(MODEL.as_network(), policy, Settings(**chosen), device=torch.device("cpu"), seed=0)  # type: ignore[arg-type]


def unroll(*, steps: int, environments: int) -> Trajectory:
    def one(seed: int) -> Experience:
        return experience(seed, *[""] * steps)

    return trajectory_of(*map(one, range(environments)), recorded=MODEL.recorded)


def gradient_of(learner: A3C, batch: PolicyBatch) -> Tensor:
    loss = learner.loss(batch).total
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(learner.network.parameters()))])


def test_before_the_weights_have_moved_it_is_the_policy_gradient() -> None:
    trajectory = unroll(steps=4, environments=2)
    (clipped,) = algorithm().batches(trajectory)
    (plain,) = algorithm(surrogate="none").batches(trajectory)
    torch.testing.assert_close(gradient_of(algorithm(), clipped), gradient_of(algorithm(surrogate="none"), plain))


def test_what_others_have_moved_since_is_not_taken_from_the_clip_range() -> None:
    """The ratio is to the policy that learning begins with; the step counts min(1, π₀/μ) of the one that acted, μ."""
    trajectory = unroll(steps=4, environments=2)
    drift = torch.tensor([0.5, -0.5, 2.0, -2.0], dtype=torch.float64)[:, None].expand(4, 2)
    (before,) = algorithm().batches(trajectory)
    trajectory.recorded["log_probabilities"] -= drift
    trajectory.recorded["values"] += 10.0
    (after,) = algorithm().batches(trajectory)
    torch.testing.assert_close(after.weights.view(4, 2), drift.exp().clamp(max=1.0))
    torch.testing.assert_close(before.weights, torch.ones_like(before.weights))
    for field in set(PARTS) - {"weights"}:
        torch.testing.assert_close(getattr(after, field), getattr(before, field), msg=field)


@pytest.mark.parametrize("together", [1, 6, 7, 1000])
def test_an_unroll_is_evaluated_alike_however_many_observations_are_looked_at_at_once(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trajectory = unroll(steps=7, environments=2)
    (whole,) = algorithm().batches(trajectory)
    monkeypatch.setattr(a3c, "EVALUATED_TOGETHER", together)
    (in_parts,) = algorithm().batches(trajectory)
    for field in PARTS:
        torch.testing.assert_close(getattr(in_parts, field), getattr(whole, field), msg=field)


@pytest.mark.parametrize(
    ("ratio", "advantage", "moves"),
    [
        (1.1, 2.0, True),  # inside
        (0.9, -2.0, True),
        (1.3, 2.0, False),  # already far enough in the direction that pays
        (0.7, -2.0, False),
        (1.3, -2.0, True),  # far in the wrong direction: back
        (0.7, 2.0, True),
    ],
)
def test_what_has_moved_far_enough_is_left_alone(ratio: float, advantage: float, moves: bool) -> None:
    """Schulman et al. 2017, figure 1. By hand: the gradient of −w ρ A is −w ρ A ∂ log π."""
    learner = algorithm(value_weight=0.0, entropy_weight=0.0)
    x, action = np.array([0.3, -0.7, 1.1]), 2
    probability = MODEL.policy(x)[action]
    batch = PolicyBatch(
        observations=torch.tensor(x)[None, None],
        starts=torch.ones(1, 1, dtype=torch.bool),
        actions=torch.tensor([[action]]),
        log_probabilities=torch.tensor([[np.log(probability / ratio)]]),
        weights=torch.tensor([[WEIGHT]], dtype=torch.float64),
        advantages=torch.tensor([[advantage]], dtype=torch.float64),
        value_targets=torch.zeros(1, 1, dtype=torch.float64),
        state=(),
    )
    by_logits = -WEIGHT * ratio * advantage * (np.eye(4)[action] - MODEL.policy(x)) * moves
    expected = np.concatenate([np.outer(by_logits, x).ravel(), by_logits, np.zeros(4)])
    np.testing.assert_allclose(gradient_of(learner, batch).numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("steps", "environments", "minibatches", "sizes"),
    [
        (8, 2, 1, {16}),
        (8, 2, 4, {4}),
        (5, 2, 4, {2, 3}),
        (3, 3, 4, {2, 3}),
        (2, 1, 4, {1}),  # fewer transitions than minibatches
    ],
)
def test_each_epoch_has_every_transition_once_in_minibatches_of_about_one_size(
    steps: int, environments: int, minibatches: int, sizes: set[int]
) -> None:
    trajectory = unroll(steps=steps, environments=environments)
    epochs = 3
    batches = list(algorithm(epochs=epochs, minibatches=minibatches).batches(trajectory))
    pushes = min(minibatches, trajectory.steps)
    assert len(batches) == epochs * pushes
    assert {batch.actions.numel() for batch in batches} == sizes
    for epoch in range(epochs):
        seen = torch.cat([batch.observations[0] for batch in batches[epoch * pushes :][:pushes]])
        assert sorted(seen.tolist()) == sorted(trajectory.observations[:-1].flatten(0, 1).tolist())


def test_what_minibatches_learn_from_does_not_change_with_the_weights() -> None:
    """An unroll is judged once, by the weights that learning begins with."""
    learner = algorithm(epochs=2)
    batches = learner.batches(unroll(steps=10, environments=1))
    first = next(batches)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.add_(1.0)
    second = next(batches)
    assert sorted(first.advantages.tolist()) == sorted(second.advantages.tolist())
    assert sorted(first.value_targets.tolist()) == sorted(second.value_targets.tolist())


@pytest.mark.parametrize("minibatches", [1, 3])
def test_normalised_advantages_of_an_unroll_have_mean_0_and_deviation_1(minibatches: int) -> None:
    trajectory = unroll(steps=6, environments=2)
    (plain,) = algorithm().batches(trajectory)
    batches = list(algorithm(normalize_advantages=True, minibatches=minibatches).batches(trajectory))
    normalised = torch.cat([batch.advantages[0] for batch in batches])
    advantages = plain.advantages.numpy()
    by_hand = (advantages - advantages.mean()) / advantages.std(ddof=1)
    np.testing.assert_allclose(np.sort(normalised), np.sort(by_hand[0]), rtol=1e-6)
    targets = torch.cat([batch.value_targets[0] for batch in batches])
    assert sorted(targets.tolist()) == sorted(plain.value_targets[0].tolist()), "the value is drawn to true returns"
