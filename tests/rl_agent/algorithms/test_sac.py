"""Soft actor-critic: its loss and gradient against a version written out in float64, and its relations."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from ps_common.settings.run_spec import NetworkSettings, Replay, RunSpec, SacSettings
from rl_agent.algorithms.algorithm import Loaded
from rl_agent.algorithms.sac import Sac
from rl_agent.environments.spaces import BoxActions
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.replay.replay_memory import Drawn
from rl_eval.spaces_record import PolicySpaces
from tests.rl_agent.observation_spaces import numbers

CPU = torch.device("cpu")
FEATURES, ACTIONS, BATCH = 3, 2, 7
BOUNDS = BoxActions(low=np.array([-2.0, 0.0], np.float32), high=np.array([2.0, 1.0], np.float32))
LOW, HIGH = torch.tensor([-2.0, 0.0]).double(), torch.tensor([2.0, 1.0]).double()
DISCOUNT = 0.97


def sac(*, actions: BoxActions = BOUNDS, layer_norm: bool = False, **settings: object) -> Sac:
    given = SacSettings(**settings)  # type: ignore[arg-type]
    run = RunSpec(network=NetworkSettings(hidden=(5, 4), layer_norm=layer_norm), replay=Replay(learning_starts=0))
    torch.manual_seed(0)
    made = Sac.build(given, run, PolicySpaces(numbers(FEATURES), actions), device=CPU, seed=0)
    for parameter in made.network.parameters():  # biases, too, have values
        parameter.data += 0.1 * torch.randn(parameter.shape)
    made.begin_unroll(10**6)
    return made


def batch(seed: int = 0) -> Drawn:
    random = np.random.default_rng(seed)
    low, high = BOUNDS.low, BOUNDS.high
    return Drawn(
        observations=torch.from_numpy(random.normal(size=(BATCH, FEATURES)).astype(np.float32)),
        actions=torch.from_numpy(random.uniform(low, high, (BATCH, ACTIONS)).astype(np.float32)),
        rewards=torch.from_numpy(random.normal(size=BATCH).astype(np.float32)),
        discounts=torch.from_numpy(np.where(random.random(BATCH) < 0.3, 0, DISCOUNT).astype(np.float32)),
        next_observations=torch.from_numpy(random.normal(size=(BATCH, FEATURES)).astype(np.float32)),
        weights=torch.from_numpy(random.uniform(0.2, 1, BATCH).astype(np.float32)),
        places=(np.zeros(BATCH, np.int64), np.zeros(BATCH, np.int64)),
        age=0.0,
    )


class WrittenOut:
    """The same mathematics, one row and one critic at a time, in float64."""

    def __init__(self, trained: Sac, noise: tuple[Tensor, Tensor]) -> None:
        """`noise` of the next actions and of the actions [B, A]."""
        self.tensors = {
            name: one.detach().double().requires_grad_() for name, one in trained.network.named_parameters()
        }
        self.targets = {name: one.detach().double() for name, one in trained._target.named_parameters()}
        self.noise = tuple(one.double() for one in noise)

    def policy(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        for layer in (0, 2):
            x = torch.relu(self.tensors[f"policy.head.{layer}.weight"] @ x + self.tensors[f"policy.head.{layer}.bias"])
        outputs = self.tensors["policy.head.4.weight"] @ x + self.tensors["policy.head.4.bias"]
        mean, log_deviation = outputs[:ACTIONS], outputs[ACTIONS:]
        u = mean + log_deviation.exp() * noise
        log = torch.zeros((), dtype=torch.float64)
        for i in range(ACTIONS):
            log = log - 0.5 * noise[i] ** 2 - log_deviation[i] - 0.5 * math.log(2 * math.pi)
            log = log - torch.log(1 - torch.tanh(u[i]) ** 2)
        return torch.tanh(u), log

    def critic(self, tensors: dict[str, Tensor], number: int, x: Tensor, action: Tensor) -> Tensor:
        value = torch.cat([x, action])
        for layer in range(3):
            weight, bias = (tensors[f"perceptrons.{kind}.{layer}"][number] for kind in ("weights", "biases"))
            value = value @ weight + bias[0]
            value = torch.relu(value) if layer < 2 else value
        return value[0]

    def loss(self, drawn: Drawn) -> Tensor:
        alpha = self.tensors["log_temperature"].exp()
        own = {name.removeprefix("critics."): one for name, one in self.tensors.items() if name.startswith("critics.")}
        fixed = {name: one.detach() for name, one in own.items()}
        total = torch.zeros((), dtype=torch.float64)
        for row in range(BATCH):
            x, after = drawn.observations[row].double(), drawn.next_observations[row].double()
            with torch.no_grad():
                next_action, next_log = self.policy(after, self.noise[0][row])
                values = [self.critic(self.targets, number, after, next_action) for number in range(2)]
                y = drawn.rewards[row] + drawn.discounts[row] * (min(values) - alpha * next_log)
            taken = 2 * (drawn.actions[row].double() - LOW) / (HIGH - LOW) - 1
            for number in range(2):
                error = self.critic(own, number, x, taken) - y
                total = total + drawn.weights[row] * 0.5 * error**2 / BATCH
            action, log = self.policy(x, self.noise[1][row])
            smallest = torch.stack([self.critic(fixed, number, x, action) for number in range(2)]).min()
            total = total + (alpha.detach() * log - smallest) / BATCH
            total = total - self.tensors["log_temperature"] * (log.detach() - ACTIONS) / BATCH
        return total


def test_loss_and_gradient_are_those_of_the_version_written_out() -> None:
    trained, drawn = sac(), batch()
    for parameter in trained._target.parameters():  # the targets are others than the critics
        parameter += 0.05
    random = torch.Generator().manual_seed(7)
    noise = (torch.randn(BATCH, ACTIONS, generator=random), torch.randn(BATCH, ACTIONS, generator=random))
    trained._random.manual_seed(7)
    written_out = WrittenOut(trained, noise)
    expected = written_out.loss(drawn)
    network = FlatNetwork(trained.network)
    loss = trained.loss(drawn)
    gradient, _ = network.gradient_of(loss.total, clip=0)
    assert float(loss.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    of_written_out = torch.autograd.grad(expected, list(written_out.tensors.values()))
    for (name, found), wanted in zip(network.schema.views(gradient).items(), of_written_out, strict=True):
        assert torch.allclose(found.double(), wanted, rtol=1e-4, atol=2e-6), name


def test_the_environment_gets_the_action_that_the_critics_judge() -> None:
    trained, seen = sac(actions=BOUNDS), batch().observations
    mean = trained.network(seen)
    decided = trained.act(seen, (), torch.zeros(BATCH, dtype=torch.bool), greedy=True).actions
    native = BOUNDS.native(decided.numpy())
    assert np.allclose(native, BOUNDS.low + (BOUNDS.high - BOUNDS.low) * (mean.detach().numpy() + 1) / 2, atol=1e-5)
    assert torch.allclose(trained._unit(decided), mean, atol=1e-5)


def loaded(version: int, *, went_back: bool = False) -> Loaded:
    return Loaded(epoch=1, version=version, global_steps=0, workers=1, went_back=went_back)


def test_the_policy_learns_in_each_nth_update_what_it_would_learn_in_each() -> None:
    every, third, drawn = sac(), sac(policy_every=3), batch()
    for number in range(1, 7):
        gradients = []
        for trained in (every, third):
            trained._random.manual_seed(number)
            network = FlatNetwork(trained.network, blocks=trained.blocks)
            loss = trained.loss(drawn)
            gradients.append(network.gradient_of(loss.total, clip=0, blocks=loss.blocks)[0])
        assert loss.blocks == (() if number % 3 == 0 else ("critics",))
        for name, wanted in network.schema.views(gradients[0]).items():
            found = network.schema.views(gradients[1])[name]
            is_moved = number % 3 == 0 or name.startswith("critics.")
            assert torch.equal(found, wanted if is_moved else torch.zeros_like(wanted)), name


def test_log_probabilities_are_those_of_a_transformed_distribution_of_torch() -> None:
    trained, seen = sac(), batch().observations
    trained._random.manual_seed(3)
    actions, logs = trained._sampled(seen)
    mean, log_deviation, _ = trained.network.policy.distribution(seen)
    normal = torch.distributions.Normal(mean, log_deviation.exp())
    squashed = torch.distributions.TransformedDistribution(normal, [torch.distributions.TanhTransform()])
    assert torch.allclose(logs, squashed.log_prob(actions.clamp(-0.999999, 0.999999)).sum(-1), atol=1e-3)


def test_targets_follow_by_version_however_many_versions_lie_between_two_pulls() -> None:
    each, seldom = sac(target_rate=0.1), sac(target_rate=0.1)
    for trained in (each, seldom):
        trained.loaded(loaded(1))
        with torch.no_grad():
            for parameter in trained.network.critics.parameters():
                parameter += 1
    for version in range(2, 8):
        each.loaded(loaded(version))
    seldom.loaded(loaded(7))
    for one, other in zip(each._target.parameters(), seldom._target.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize("newer", [1, 6])
@pytest.mark.parametrize("before", [0.5, torch.nan])
def test_targets_begin_with_the_weights_where_the_run_went_back(newer: int, before: float) -> None:
    """A server that recalls a checkpoint, because its weights are lost, has a later version."""
    trained = sac()
    with torch.no_grad():
        for parameter in trained._target.parameters():
            parameter.fill_(before)
    trained.loaded(loaded(5))
    with torch.no_grad():
        for parameter in trained.network.critics.parameters():
            parameter += 1
    trained.loaded(loaded(newer, went_back=True))
    for mine, leader in zip(trained._target.parameters(), trained.network.critics.parameters(), strict=True):
        assert torch.equal(mine, leader)


def test_the_loss_of_the_policy_moves_no_critic_and_that_of_the_critics_no_policy() -> None:
    trained, drawn = sac(), batch()
    seen = drawn.observations
    actions, logs = trained._sampled(seen)
    (logs - trained.network.critics(seen, actions, fixed=True).amin(0)).mean().backward()
    assert all(parameter.grad is None for parameter in trained.network.critics.parameters())
    assert all(parameter.grad is not None for parameter in trained.network.policy.parameters())


@pytest.mark.parametrize("layer_norm", [False, True])
def test_many_critics_in_one_batch_are_as_many_single_ones(layer_norm: bool) -> None:
    trained = sac(critics=5, layer_norm=layer_norm)
    drawn = batch()
    values = trained.network.critics(drawn.observations, drawn.actions)
    perceptrons = trained.network.critics.perceptrons
    for number in range(5):
        x = torch.cat([drawn.observations, drawn.actions], -1)
        for layer in range(3):
            x = x @ perceptrons.weights[layer][number] + perceptrons.biases[layer][number]
            if layer < 2:
                if layer_norm:
                    gain, shift = perceptrons.gains[layer][number, 0], perceptrons.shifts[layer][number, 0]
                    x = torch.nn.functional.layer_norm(x, x.shape[-1:], gain, shift)
                x = torch.relu(x)
        assert torch.allclose(values[number], x.squeeze(-1), atol=1e-5)


def test_actions_are_random_until_learning_starts_and_within_the_bounds_always() -> None:
    trained = sac()
    seen = torch.zeros(500, FEATURES)
    starts = torch.zeros(500, dtype=torch.bool)
    for steps in (0, 10**6):
        trained.begin_unroll(steps)
        taken = trained.act(seen, (), starts).actions.numpy()
        assert (taken >= BOUNDS.low).all()
        assert (taken <= BOUNDS.high).all()


def test_a_run_that_starts_from_weights_plays_with_its_policy_from_the_first_step() -> None:
    def first_actions(start_from: str, *, evaluates: bool) -> Tensor:
        torch.manual_seed(0)
        run = RunSpec(network=NetworkSettings(hidden=(5,)), replay=Replay(learning_starts=1000), start_from=start_from)
        made = Sac.build(SacSettings(), run, PolicySpaces(numbers(FEATURES), BOUNDS), device=CPU, seed=0)
        if evaluates:
            made.begin_evaluation()
        made.begin_unroll(0)
        return made.act(batch().observations, (), torch.zeros(BATCH, dtype=torch.bool)).actions

    of_policy = first_actions("", evaluates=True)
    assert torch.equal(first_actions("a-policy", evaluates=False), of_policy)
    assert not torch.equal(first_actions("", evaluates=False), of_policy)
