"""A3C against algorithm S3 written out, and how it acts and learns."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from common.errors import RunEnded
from common.run_spec import A3C as Settings
from rl_worker.algorithms.a3c import A3C
from rl_worker.gradients import FlatNetwork
from rl_worker.networks import PolicyValueNetwork
from rl_worker.rollouts import RolloutCollector, Trajectory
from rl_worker.training import train
from tests.rl_worker.local_parameters import parameters_for
from tests.rl_worker.scripted_environments import Bandit
from tests.rl_worker.written_out_a3c import (
    ACTIONS,
    DISCOUNT,
    FEATURES,
    Array,
    Experience,
    LinearActorCritic,
    algorithm_s3,
    experience,
    trajectory_of,
)

MODEL = LinearActorCritic(seed=0)
GOES_ON = experience(1, "", "", "", "", "")
TERMINATED = experience(2, "", "terminated", "", "", "terminated")
TRUNCATED = experience(3, "", "", "truncated", "", "truncated")
PAPER = {"discount": DISCOUNT, "value_weight": 0.5, "entropy_weight": 0.1, "reward_clip": 0.0}


def algorithm(network: nn.Module | None = None, *, seed: int = 0, **settings: object) -> A3C:
    network = MODEL.as_network() if network is None else network
    return A3C(network, Settings(**PAPER | settings), device=torch.device("cpu"), seed=seed)  # type: ignore[arg-type]


def gradient_of(learner: A3C, trajectory: Trajectory, *, global_steps: int = 0) -> Tensor:
    """The gradient [P] of the only batch of a trajectory."""
    (batch,) = learner.batches(trajectory)
    loss = learner.loss(batch, global_steps=global_steps).total
    gradients = torch.autograd.grad(loss, list(learner.network.parameters()))
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def assert_gradient(found: Tensor, expected: Array) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "seen", [GOES_ON, TERMINATED, TRUNCATED], ids=["goes on", "terminated at a step", "truncated at a step"]
)
@pytest.mark.parametrize(("value_weight", "entropy_weight"), [(0.5, 0.01), (1.0, 0.0), (0.0, 0.3)])
def test_the_gradient_is_that_of_algorithm_s3(seen: Experience, value_weight: float, entropy_weight: float) -> None:
    learner = algorithm(value_weight=value_weight, entropy_weight=entropy_weight)
    expected = algorithm_s3(MODEL, seen, value_weight=value_weight, entropy_weight=entropy_weight)
    assert_gradient(gradient_of(learner, trajectory_of(MODEL, seen)), expected)


@pytest.mark.parametrize("seen", [GOES_ON, TERMINATED, TRUNCATED], ids=["goes on", "terminated", "truncated"])
@pytest.mark.parametrize("trace", [0.0, 0.5, 0.95])
def test_with_generalised_advantages_the_value_is_drawn_to_the_lambda_return(seen: Experience, trace: float) -> None:
    expected = algorithm_s3(MODEL, seen, value_weight=0.5, entropy_weight=0.1, trace=trace)
    assert_gradient(gradient_of(algorithm(gae_lambda=trace), trajectory_of(MODEL, seen)), expected)


def test_the_gradient_of_many_environments_is_the_sum_of_their_gradients() -> None:
    many = (GOES_ON, TERMINATED, TRUNCATED)
    together = gradient_of(algorithm(), trajectory_of(MODEL, *many))
    apart = [gradient_of(algorithm(), trajectory_of(MODEL, one)).numpy() for one in many]
    assert_gradient(together, np.sum(apart, axis=0))
    written_out = [algorithm_s3(MODEL, one, value_weight=0.5, entropy_weight=0.1) for one in many]
    assert_gradient(together, np.sum(written_out, axis=0))


def test_the_mean_is_the_sum_over_the_number_of_transitions() -> None:
    trajectory = trajectory_of(MODEL, GOES_ON, TERMINATED)
    summed = gradient_of(algorithm(), trajectory)
    assert_gradient(gradient_of(algorithm(loss="mean"), trajectory) * 10, summed.numpy())


def test_rewards_are_clipped_for_the_learner_alone() -> None:
    trajectory = trajectory_of(MODEL, GOES_ON)
    true = trajectory.rewards.clone()
    assert true.abs().max() > 1
    expected = algorithm_s3(MODEL, GOES_ON, value_weight=0.5, entropy_weight=0.1, reward_clip=1.0)
    assert_gradient(gradient_of(algorithm(reward_clip=1.0), trajectory), expected)
    assert torch.equal(trajectory.rewards, true)


def entropy_of(network: nn.Module, observations: Tensor) -> float:
    policy = network(observations)[0].detach().softmax(-1)
    return float(-(policy * policy.log()).sum(-1).mean())


def test_the_entropy_bonus_makes_the_policy_less_certain() -> None:
    learner = algorithm(value_weight=0.0, entropy_weight=1.0)
    trajectory = trajectory_of(MODEL, GOES_ON)
    trajectory.rewards.zero_()
    trajectory.next_values.zero_()
    trajectory.values.zero_()
    before = entropy_of(learner.network, trajectory.observations.flatten(0, 1))
    downhill = -0.01 * gradient_of(learner, trajectory)
    weights = nn.utils.parameters_to_vector(learner.network.parameters()) + downhill
    nn.utils.vector_to_parameters(weights, learner.network.parameters())
    assert entropy_of(learner.network, trajectory.observations.flatten(0, 1)) > before


@pytest.mark.parametrize(("global_steps", "weight"), [(0, 0.4), (500, 0.2), (1000, 0.0), (5000, 0.0)])
def test_the_entropy_weight_moves_with_the_steps_of_the_whole_run(global_steps: int, weight: float) -> None:
    learner = algorithm(entropy_weight=0.4, final_entropy_weight=0.0, entropy_anneal_steps=1000)
    found = gradient_of(learner, trajectory_of(MODEL, GOES_ON), global_steps=global_steps)
    assert_gradient(found, algorithm_s3(MODEL, GOES_ON, value_weight=0.5, entropy_weight=weight))


def test_a_policy_that_is_certain_has_a_finite_loss() -> None:
    network = FixedPolicy([1000.0, 0.0, -1000.0, 0.0])
    learner = A3C(network, Settings(), device=torch.device("cpu"), seed=0)
    (batch,) = learner.batches(trajectory_of(MODEL, GOES_ON))
    loss = learner.loss(batch, global_steps=0)
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss.total)
    assert network.logits.grad is not None
    assert torch.isfinite(network.logits.grad).all()


def test_the_meters_are_means_over_the_batch() -> None:
    learner = algorithm()
    (batch,) = learner.batches(trajectory_of(MODEL, GOES_ON))
    meters = learner.loss(batch, global_steps=0).meters
    assert float(meters["entropy"]) == pytest.approx(entropy_of(learner.network, batch.observations))
    assert float(meters["value_loss"]) == pytest.approx(float(0.5 * batch.advantages.square().mean()))
    assert float(meters["value"]) == pytest.approx(float((batch.returns - batch.advantages).mean()))
    expected = -(batch.log_probabilities * batch.advantages).mean()
    assert float(meters["policy_loss"]) == pytest.approx(float(expected))


class FixedPolicy(nn.Module):
    """The same logits for whatever is seen; values count the observations."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits.expand(len(observations), -1), torch.arange(len(observations)) + 0 * self.logits.sum()


def test_sampled_actions_are_as_frequent_as_they_are_probable() -> None:
    probabilities = torch.tensor([0.6, 0.1, 0.15, 0.15])
    choice = algorithm(FixedPolicy(probabilities.log().tolist())).act(torch.zeros(20_000, FEATURES))
    frequencies = choice.actions.bincount(minlength=ACTIONS) / 20_000
    torch.testing.assert_close(frequencies, probabilities, atol=0.015, rtol=0)
    torch.testing.assert_close(choice.log_probabilities, probabilities.log()[choice.actions])
    assert choice.values.tolist() == list(range(20_000))
    assert not choice.values.requires_grad


def test_greedy_actions_are_the_most_probable_ones() -> None:
    choice = algorithm(FixedPolicy([0.0, 0.1, 0.3, 0.2])).act(torch.zeros(100, FEATURES), greedy=True)
    assert choice.actions.tolist() == [2] * 100
    torch.testing.assert_close(choice.log_probabilities, torch.tensor([0.0, 0.1, 0.3, 0.2]).log_softmax(0)[[2] * 100])


def test_the_seed_decides_what_is_sampled() -> None:
    def sampled(seed: int) -> list[int]:
        actions: list[int] = algorithm(FixedPolicy([0.0] * 4), seed=seed).act(torch.zeros(50, 3)).actions.tolist()
        return actions

    assert sampled(1) == sampled(1)
    assert sampled(1) != sampled(2)


@pytest.mark.parametrize("surrogate", ["none", "clip"])
def test_a_bandit_whose_only_reward_is_terminal_learns_its_best_arm(surrogate: str) -> None:
    torch.manual_seed(0)
    network = PolicyValueNetwork(nn.Identity(), FEATURES, ACTIONS)
    learner = algorithm(
        network, unroll_length=5, loss="mean", entropy_weight=0.0, surrogate=surrogate, epochs=2, minibatches=2
    )
    flat = FlatNetwork(network)
    collector = RolloutCollector(Bandit([0.0, 0.2, 1.0, 0.5], count=8), unroll_length=5, discount=DISCOUNT, seed=0)
    with pytest.raises(RunEnded):
        train(parameters_for(flat, learning_rate=1.0, updates=100), flat, collector, learner)
    assert network(torch.ones(1, FEATURES))[0].softmax(-1)[0, 2] > 0.9
