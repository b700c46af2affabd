"""A3C against algorithm S3 written out, and how it acts and learns."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ps_common.errors import RunEnded
from ps_common.settings.run_spec import A3CSettings as Settings
from rl_agent.algorithms.a3c import A3C
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.policies import Categorical
from rl_agent.rollouts import Decision, RolloutCollector, State, Trajectory
from rl_worker.training import train
from tests.rl_agent.experience import ACTIONS, DISCOUNT, FEATURES, Array, Experience, experience, trajectory_of
from tests.rl_agent.local_parameters import parameters_for
from tests.rl_agent.scripted_environments import Bandit
from tests.rl_agent.written_out_a3c import LinearActorCritic, algorithm_s3

MODEL = LinearActorCritic(seed=0)
GOES_ON = experience(1, "", "", "", "", "")
TERMINATED = experience(2, "", "terminated", "", "", "terminated")
TRUNCATED = experience(3, "", "", "truncated", "", "truncated")
PAPER = {"discount": DISCOUNT, "value_weight": 0.5, "entropy_weight": 0.1, "reward_clip": 0.0}


def algorithm(network: nn.Module | None = None, *, seed: int = 0, **settings: object) -> A3C:
    own: Any = MODEL.as_network() if network is None else network
    chosen = Settings(**PAPER | settings)  # type: ignore[arg-type]
    return A3C(own, Categorical(ACTIONS), chosen, device=torch.device("cpu"), seed=seed)


def unroll_of(*environments: Experience) -> Trajectory:
    return trajectory_of(*environments, recorded=MODEL.recorded)


def gradient_of(learner: A3C, trajectory: Trajectory, *, global_steps: int = 0) -> Tensor:
    """The gradient [P] of the only batch of a trajectory."""
    learner.begin_unroll(global_steps)
    (batch,) = learner.batches(trajectory)
    gradients = torch.autograd.grad(learner.loss(batch).total, list(learner.network.parameters()))
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
    assert_gradient(gradient_of(learner, unroll_of(seen)), expected)


def test_the_gradient_of_many_environments_is_the_sum_of_their_gradients() -> None:
    many = (GOES_ON, TERMINATED, TRUNCATED)
    together = gradient_of(algorithm(), unroll_of(*many))
    apart = [gradient_of(algorithm(), unroll_of(one)).numpy() for one in many]
    assert_gradient(together, np.sum(apart, axis=0))
    written_out = [algorithm_s3(MODEL, one, value_weight=0.5, entropy_weight=0.1) for one in many]
    assert_gradient(together, np.sum(written_out, axis=0))


def test_rewards_are_clipped_for_the_learner_alone() -> None:
    trajectory = unroll_of(GOES_ON)
    true = trajectory.rewards.clone()
    assert true.abs().max() > 1
    expected = algorithm_s3(MODEL, GOES_ON, value_weight=0.5, entropy_weight=0.1, reward_clip=1.0)
    assert_gradient(gradient_of(algorithm(reward_clip=1.0), trajectory), expected)
    assert torch.equal(trajectory.rewards, true)


def entropy_of(learner: A3C, trajectory: Trajectory) -> float:
    parameters, _, _ = learner.network(trajectory.observations[:-1], (), trajectory.starts[:-1])
    policy = parameters.detach().softmax(-1)
    return float(-(policy * policy.log()).sum(-1).mean())


@pytest.mark.parametrize("sign", [1, -1])
def test_the_entropy_bonus_makes_the_policy_less_certain_and_a_negative_one_more(sign: int) -> None:
    learner = algorithm(value_weight=0.0, entropy_weight=1.0, final_entropy_weight=sign, entropy_anneal_steps=1)
    terminal = experience(1, *["terminated"] * 5)
    trajectory = unroll_of(terminal)
    trajectory.rewards.zero_()
    trajectory.recorded["values"].zero_()
    before = entropy_of(learner, trajectory)
    downhill = -0.01 * gradient_of(learner, trajectory, global_steps=1)
    weights = nn.utils.parameters_to_vector(learner.network.parameters()) + downhill
    nn.utils.vector_to_parameters(weights, learner.network.parameters())
    assert sign * (entropy_of(learner, trajectory) - before) > 0


@pytest.mark.parametrize(
    ("global_steps", "final", "weight"),
    [(0, 0.0, 0.4), (500, 0.0, 0.2), (1000, 0.0, 0.0), (5000, 0.0, 0.0), (750, -0.4, -0.2), (5000, -0.4, -0.4)],
)
def test_the_entropy_weight_moves_with_the_steps_of_the_whole_run(
    global_steps: int, final: float, weight: float
) -> None:
    learner = algorithm(entropy_weight=0.4, final_entropy_weight=final, entropy_anneal_steps=1000)
    found = gradient_of(learner, unroll_of(GOES_ON), global_steps=global_steps)
    assert_gradient(found, algorithm_s3(MODEL, GOES_ON, value_weight=0.5, entropy_weight=weight))


def test_v_trace_weighs_what_another_policy_has_done() -> None:
    """Where the action was twice as probable then, the step counts half: all of it at λ = 0, by hand."""
    trajectory = unroll_of(experience(6, *["terminated"] * 4))
    half = torch.tensor([0.0, np.log(2.0), 0.0, np.log(2.0)])[:, None]
    trajectory.recorded["log_probabilities"] += half
    learner = algorithm(off_policy="vtrace")
    (batch,) = learner.batches(trajectory)
    weights = torch.exp(-half).double()
    errors = trajectory.rewards - trajectory.recorded["values"]
    torch.testing.assert_close((batch.weights * batch.advantages).view(4, 1), weights * errors)
    torch.testing.assert_close(batch.value_targets.view(4, 1), trajectory.recorded["values"] + weights * errors)


def test_v_trace_judges_each_epoch_by_the_newest_weights_and_the_plain_returns_by_the_first() -> None:
    for off_policy, moves in (("vtrace", True), ("none", False)):
        learner = algorithm(off_policy=off_policy, epochs=2)
        batches = learner.batches(unroll_of(GOES_ON))
        first = next(batches)
        with torch.no_grad():
            for parameter in learner.network.parameters():
                parameter.add_(torch.arange(float(parameter.numel())).view_as(parameter))
        assert torch.equal(first.advantages, next(batches).advantages) != moves


class FixedPolicy(nn.Module):
    """The same logits for whatever is seen; values count the observations."""

    def __init__(self, logits: list[float]) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor(logits))
        self.returns = None  # rewards are not normalised

    def forward(self, observations: Tensor, state: State, starts: Tensor) -> tuple[Tensor, Tensor, State]:
        values = torch.arange(starts.numel()).view_as(starts) + 0 * self.logits.sum()
        return self.logits.expand(*starts.shape, -1), values, ()


def decided(learner: A3C, count: int, *, greedy: bool = False) -> Decision:
    return learner.act(torch.zeros(count, FEATURES), (), torch.ones(count, dtype=torch.bool), greedy=greedy)


def test_sampled_actions_are_as_frequent_as_they_are_probable() -> None:
    probabilities = torch.tensor([0.6, 0.1, 0.15, 0.15])
    decision = decided(algorithm(FixedPolicy(probabilities.log().tolist())), 20_000)
    frequencies = decision.actions.bincount(minlength=ACTIONS) / 20_000
    torch.testing.assert_close(frequencies, probabilities, atol=0.015, rtol=0)
    torch.testing.assert_close(decision.recorded["log_probabilities"], probabilities.log()[decision.actions])
    assert decision.recorded["values"].tolist() == list(range(20_000))
    assert not decision.recorded["values"].requires_grad


@pytest.mark.parametrize("surrogate", ["none", "clip"])
def test_a_bandit_whose_only_reward_is_terminal_learns_its_best_arm(surrogate: str) -> None:
    network = MODEL.as_network().float()
    learner = algorithm(
        network, unroll_length=5, loss="mean", entropy_weight=0.0, surrogate=surrogate, epochs=2, minibatches=2
    )
    flat = FlatNetwork(network)
    collector = RolloutCollector(
        Bandit([0.0, 0.2, 1.0, 0.5], count=8), learner, unroll_length=5, discount=DISCOUNT, seed=0
    )
    with pytest.raises(RunEnded):
        train(parameters_for(flat, learning_rate=0.3, updates=200), flat, collector, learner)
    always = learner.act(torch.ones(100, FEATURES), (), torch.ones(100, dtype=torch.bool))
    assert always.recorded["log_probabilities"].exp().mean() > 0.8
    assert (always.actions == 2).double().mean() > 0.9
