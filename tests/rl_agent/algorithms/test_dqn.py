"""Deep Q-learning: its loss and gradient against versions written out in float64."""

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from ps_common.settings.run_spec import DqnSettings, NetworkSettings, Replay, RunSpec
from rl_agent.algorithms.dqn import Dqn
from rl_agent.environments.spaces import DiscreteActions
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.replay.replay_memory import Drawn
from rl_eval.spaces_record import PolicySpaces
from tests.rl_agent.observation_spaces import numbers

FEATURES, ACTIONS, BATCH = 3, 4, 9


def dqn(**settings: object) -> Dqn:
    given = DqnSettings(**settings)  # type: ignore[arg-type]
    run = RunSpec(network=NetworkSettings(hidden=(5,)), replay=Replay(learning_starts=0))
    torch.manual_seed(0)
    spaces = PolicySpaces(numbers(FEATURES), DiscreteActions(ACTIONS))
    made = Dqn.build(given, run, spaces, device=torch.device("cpu"), seed=0)
    assert made.target_network is not None
    for network in (made.network, made.target_network):
        for parameter in network.parameters():
            parameter.data += 0.3 * torch.randn(parameter.shape)
    return made


def batch() -> Drawn:
    random = np.random.default_rng(1)
    return Drawn(
        observations=torch.from_numpy(random.normal(size=(BATCH, FEATURES)).astype(np.float32)),
        actions=torch.from_numpy(random.integers(0, ACTIONS, BATCH)),
        rewards=torch.from_numpy((3 * random.normal(size=BATCH)).astype(np.float32)),
        discounts=torch.from_numpy(np.where(random.random(BATCH) < 0.3, 0, 0.97).astype(np.float32)),
        next_observations=torch.from_numpy(random.normal(size=(BATCH, FEATURES)).astype(np.float32)),
        weights=torch.from_numpy(random.uniform(0.2, 1, BATCH).astype(np.float32)),
        places=(np.zeros(BATCH, np.int64), np.zeros(BATCH, np.int64)),
        age=0.0,
    )


def quantiles_of(tensors: dict[str, Tensor], x: Tensor, *, dueling: bool) -> Tensor:
    """[A, K] of one observation."""
    hidden = torch.tanh(tensors["torso.1.weight"] @ x + tensors["torso.1.bias"])
    found = (tensors["values.weight"] @ hidden + tensors["values.bias"]).reshape(ACTIONS, -1)
    if dueling:
        found = tensors["value.weight"] @ hidden + tensors["value.bias"] + found - found.mean(0)
    return found


def huber(error: Tensor) -> Tensor:
    return 0.5 * error**2 if bool(error.abs() <= 1) else error.abs() - 0.5


def written_out(trained: Dqn, tensors: dict[str, Tensor], drawn: Drawn) -> Tensor:
    """One row, one quantile and one sample of the target at a time."""
    settings = trained._dqn
    assert trained.target_network is not None
    targets = {name: one.detach().double() for name, one in trained.target_network.named_parameters()}
    total = torch.zeros((), dtype=torch.float64)
    for row in range(BATCH):
        after = drawn.next_observations[row].double()
        by_target = quantiles_of(targets, after, dueling=settings.dueling)
        chooser = quantiles_of(tensors, after, dueling=settings.dueling) if settings.double else by_target
        means = [float(of_action.mean()) for of_action in chooser.detach()]
        best = means.index(max(means))
        y = (drawn.rewards[row] + drawn.discounts[row] * by_target[best]).detach()
        mine = quantiles_of(tensors, drawn.observations[row].double(), dueling=settings.dueling)[drawn.actions[row]]
        loss = torch.zeros((), dtype=torch.float64)
        for i, j in product(range(len(mine)), range(len(y))):
            error = y[j] - mine[i]
            tau = (i + 0.5) / len(mine)
            weight = abs(tau - (1.0 if error < 0 else 0.0)) if settings.quantiles else 1.0
            loss = loss + weight * huber(error) / len(y)
        total = total + drawn.weights[row] * loss / BATCH
    return total


@pytest.mark.parametrize(("double", "dueling", "quantiles"), list(product([False, True], [False, True], [0, 5])))
def test_loss_and_gradient_are_those_of_the_version_written_out(double: bool, dueling: bool, quantiles: int) -> None:
    trained, drawn = dqn(double=double, dueling=dueling, quantiles=quantiles), batch()
    tensors = {name: one.detach().double().requires_grad_() for name, one in trained.network.named_parameters()}
    expected = written_out(trained, tensors, drawn)
    network = FlatNetwork(trained.network)
    loss = trained.loss(drawn)
    gradient, _ = network.gradient_of(loss.total, clip=0)
    assert float(loss.total.detach()) == pytest.approx(float(expected.detach()), rel=1e-6)
    of_written_out = torch.autograd.grad(expected, list(tensors.values()))
    for (name, found), wanted in zip(network.schema.views(gradient).items(), of_written_out, strict=True):
        assert torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-6), name


def test_acting_uses_the_weights_of_the_beginning_of_the_unroll() -> None:
    trained = dqn(final_epsilons=(0.0,), epsilon_anneal_steps=0)
    trained.initial_state(BATCH)
    trained.begin_unroll(0)
    seen, starts = batch().observations, torch.zeros(BATCH, dtype=torch.bool)
    before = trained.act(seen, (), starts).actions
    assert torch.equal(before, trained.network(seen).argmax(-1))
    with torch.no_grad():
        for parameter in trained.network.parameters():
            parameter.copy_(torch.randn(parameter.shape))
    assert torch.equal(trained.act(seen, (), starts).actions, before)
    trained.begin_unroll(1)
    assert torch.equal(trained.act(seen, (), starts).actions, trained.network(seen).argmax(-1))
