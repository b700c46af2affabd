"""The clipped surrogate of A3C: what its gradient is, and what its minibatches are."""

import numpy as np
import pytest
import torch
from torch import Tensor

from common.run_spec import A3C as Settings
from rl_worker.algorithms.a3c import A3C, Batch
from rl_worker.rollouts import Trajectory
from tests.rl_worker.written_out_a3c import DISCOUNT, Experience, LinearActorCritic, experience, trajectory_of

MODEL = LinearActorCritic(seed=0)


def algorithm(**settings: object) -> A3C:
    chosen = {"discount": DISCOUNT, "reward_clip": 0.0, "clip_range": 0.2, "surrogate": "clip"} | settings
    return A3C(MODEL.as_network(), Settings(**chosen), device=torch.device("cpu"), seed=0)  # type: ignore[arg-type]


def unroll(*, steps: int, environments: int) -> Trajectory:
    def one(seed: int) -> Experience:
        return experience(seed, *[""] * steps)

    return trajectory_of(MODEL, *map(one, range(environments)))


def gradient_of(learner: A3C, batch: Batch) -> Tensor:
    loss = learner.loss(batch, global_steps=0).total
    return torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(learner.network.parameters()))])


def test_before_the_weights_have_moved_it_is_the_policy_gradient() -> None:
    trajectory = unroll(steps=4, environments=2)
    (clipped,) = algorithm().batches(trajectory)
    (plain,) = algorithm(surrogate="none").batches(trajectory)
    torch.testing.assert_close(gradient_of(algorithm(), clipped), gradient_of(algorithm(surrogate="none"), plain))


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
    """Schulman et al. 2017, figure 1. By hand: the gradient of −ρ A is −ρ A ∂ log π."""
    learner = algorithm(value_weight=0.0, entropy_weight=0.0)
    x, action = np.array([0.3, -0.7, 1.1]), 2
    probability = MODEL.policy(x)[action]
    batch = Batch(
        observations=torch.tensor(x)[None],
        actions=torch.tensor([action]),
        log_probabilities=torch.tensor([np.log(probability / ratio)]),
        advantages=torch.tensor([advantage], dtype=torch.float64),
        returns=torch.zeros(1, dtype=torch.float64),
    )
    by_logits = -ratio * advantage * (np.eye(4)[action] - MODEL.policy(x)) * moves
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
    assert {len(batch.actions) for batch in batches} == sizes
    for epoch in range(epochs):
        seen = torch.cat([batch.observations for batch in batches[epoch * pushes :][:pushes]])
        assert sorted(seen.tolist()) == sorted(trajectory.observations.flatten(0, 1).tolist())


def test_the_parts_of_a_transition_stay_together() -> None:
    trajectory = unroll(steps=6, environments=2)
    (whole,) = algorithm(surrogate="none").batches(trajectory)
    place = {tuple(x): row for row, x in enumerate(whole.observations.tolist())}
    for batch in algorithm(minibatches=3).batches(trajectory):
        rows = [place[tuple(x)] for x in batch.observations.tolist()]
        for field in Batch.__dataclass_fields__:
            assert torch.equal(getattr(batch, field), getattr(whole, field)[rows]), field


def test_each_epoch_is_shuffled_anew() -> None:
    first, second = algorithm(epochs=2).batches(unroll(steps=10, environments=2))
    assert first.observations.tolist() != second.observations.tolist()


def test_the_plain_policy_gradient_uses_a_trajectory_once() -> None:
    learner = algorithm(surrogate="none", epochs=4, minibatches=4)
    assert len(list(learner.batches(unroll(steps=8, environments=2)))) == 1


def test_what_minibatches_learn_from_does_not_change_with_the_weights() -> None:
    """The advantages of an unroll are those under the weights that collected it."""
    learner = algorithm(epochs=2)
    batches = learner.batches(unroll(steps=10, environments=1))
    first = next(batches)
    with torch.no_grad():
        for parameter in learner.network.parameters():
            parameter.add_(1.0)
    second = next(batches)
    assert sorted(first.advantages.tolist()) == sorted(second.advantages.tolist())
    assert sorted(first.returns.tolist()) == sorted(second.returns.tolist())


def test_normalised_advantages_have_mean_0_and_deviation_1() -> None:
    (batch,) = algorithm(surrogate="none").batches(unroll(steps=6, environments=2))
    advantages = batch.advantages.numpy()
    by_hand = (advantages - advantages.mean()) / advantages.std(ddof=1)
    expected = Batch(
        batch.observations, batch.actions, batch.log_probabilities, torch.from_numpy(by_hand), batch.returns
    )
    found = gradient_of(algorithm(normalize_advantages=True), batch)
    torch.testing.assert_close(found, gradient_of(algorithm(), expected), rtol=1e-6, atol=1e-6)


def test_a_minibatch_of_one_transition_has_a_gradient() -> None:
    learner = algorithm(normalize_advantages=True, minibatches=4)
    for batch in learner.batches(unroll(steps=4, environments=1)):
        assert torch.isfinite(gradient_of(learner, batch)).all()
