"""Distributions over actions against those of torch, extreme parameters included."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal
from torch.nn import functional

from rl_agent.environments.spaces import BoxActions
from rl_agent.networks.policies import SMALLEST_VARIANCE, Categorical, Gaussian

A = 3


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def box(size: int = A) -> BoxActions:
    return BoxActions(np.full(size, -1, np.float32), np.full(size, 1, np.float32))


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=chance(), dtype=torch.float64)


def torch_gaussian(parameters: torch.Tensor) -> Independent:
    mean, variance = parameters.chunk(2, dim=-1)
    return Independent(Normal(mean, (functional.softplus(variance) + SMALLEST_VARIANCE).sqrt()), 1)  # type: ignore[no-untyped-call]


def test_the_categorical_is_that_of_torch() -> None:
    logits = 3 * numbers(4, 5, A)
    expected, actions = TorchCategorical(logits=logits), torch.arange(20).view(4, 5) % A  # type: ignore[no-untyped-call]
    policy = Categorical(A)
    torch.testing.assert_close(policy.log_probability(logits, actions), expected.log_prob(actions))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(policy.entropy(logits), expected.entropy())  # type: ignore[no-untyped-call]
    assert torch.equal(policy.mode(logits), logits.argmax(-1))


def test_the_gaussian_is_that_of_torch() -> None:
    parameters, actions = numbers(4, 5, 2 * A), numbers(4, 5, A)
    expected, policy = torch_gaussian(parameters), Gaussian(box())
    torch.testing.assert_close(policy.log_probability(parameters, actions), expected.log_prob(actions))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(policy.entropy(parameters), expected.entropy())  # type: ignore[no-untyped-call]
    assert torch.equal(policy.mode(parameters), parameters[..., :A])


@pytest.mark.parametrize("certainty", [-1000.0, 1000.0])
def test_extreme_numbers_have_finite_densities_and_gradients(certainty: float) -> None:
    logits = torch.tensor([[certainty, 0.0, -certainty]], requires_grad=True)
    gaussian = torch.tensor([[0.0, 0.0, 0.0, certainty, 0.0, -certainty]], requires_grad=True)
    for policy, parameters, actions in (
        (Categorical(A), logits, torch.tensor([0])),
        (Gaussian(box()), gaussian, torch.ones(1, A)),
    ):
        total = policy.log_probability(parameters, actions) + policy.entropy(parameters)
        (slope,) = torch.autograd.grad(total.sum(), parameters)
        assert torch.isfinite(total).all()
        assert torch.isfinite(slope).all()


def test_the_entropy_of_a_gaussian_is_that_of_the_paper() -> None:
    """½ (log 2πσ² + 1) for each action, section 9 of the supplement."""
    before = [2.0, -1.0, 0.0]
    variances = (functional.softplus(torch.tensor(before)) + SMALLEST_VARIANCE).tolist()
    found = Gaussian(box()).entropy(torch.tensor([[0.0, 0.0, 0.0, *before]]))
    assert float(found) == pytest.approx(sum(0.5 * (math.log(2 * math.pi * variance) + 1) for variance in variances))
