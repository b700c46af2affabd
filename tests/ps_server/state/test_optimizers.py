"""Each rule against its paper, written out in float64, one number at a time."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from ps_common.settings import run_spec
from ps_common.settings.run_spec import OPTIMIZER_SETTINGS, AdamSettings, MomentumSettings, RmsPropSettings, SgdSettings
from ps_server.state.optimizers import rule_for
from tests.ps_server.transcripts import vector

SIZE, STEPS = 9, 150


def sgd(weights: list[float], gradients: np.ndarray, rates: list[float], _: SgdSettings) -> list[float]:
    for gradient, rate in zip(gradients, rates, strict=True):
        weights = [w - rate * g for w, g in zip(weights, gradient, strict=True)]
    return weights


def momentum(
    weights: list[float], gradients: np.ndarray, rates: list[float], settings: MomentumSettings
) -> list[float]:
    kept = [0.0] * SIZE
    for gradient, rate in zip(gradients, rates, strict=True):
        kept = [settings.momentum * m + g for m, g in zip(kept, gradient, strict=True)]
        weights = [w - rate * m for w, m in zip(weights, kept, strict=True)]
    return weights


def rmsprop(weights: list[float], gradients: np.ndarray, rates: list[float], settings: RmsPropSettings) -> list[float]:
    """Mnih et al. 2016, equations S2 and S3."""
    alpha, epsilon = settings.decay, settings.epsilon
    g = [0.0] * SIZE
    for delta, eta in zip(gradients, rates, strict=True):
        g = [alpha * old + (1 - alpha) * d**2 for old, d in zip(g, delta, strict=True)]
        weights = [w - eta * d / math.sqrt(old + epsilon) for w, d, old in zip(weights, delta, g, strict=True)]
    return weights


def adam(weights: list[float], gradients: np.ndarray, rates: list[float], settings: AdamSettings) -> list[float]:
    """Kingma & Ba 2015, algorithm 1."""
    beta1, beta2 = settings.beta1, settings.beta2
    m, v = [0.0] * SIZE, [0.0] * SIZE
    for t, (gradient, alpha) in enumerate(zip(gradients, rates, strict=True), start=1):
        for i, g in enumerate(gradient):
            m[i] = beta1 * m[i] + (1 - beta1) * g
            v[i] = beta2 * v[i] + (1 - beta2) * g**2
            m_hat = m[i] / (1 - beta1**t)
            v_hat = v[i] / (1 - beta2**t)
            weights[i] = weights[i] - alpha * m_hat / (math.sqrt(v_hat) + settings.epsilon)
    return weights


BY_HAND: dict[str, Callable[..., list[float]]] = {
    "sgd": sgd,
    "momentum": momentum,
    "rmsprop": rmsprop,
    "adam": adam,
}
SETTINGS: list[run_spec.Optimizer] = [
    SgdSettings(),
    MomentumSettings(),
    MomentumSettings(momentum=0.5),
    RmsPropSettings(),
    RmsPropSettings(decay=0.9, epsilon=1e-5),
    AdamSettings(),
    AdamSettings(beta1=0.5, beta2=0.9, epsilon=1e-2),
]
each_setting = pytest.mark.parametrize("settings", SETTINGS, ids=str)


def name_of(settings: run_spec.Optimizer) -> str:
    return next(name for name, kind in OPTIMIZER_SETTINGS.items() if isinstance(settings, kind))


def test_each_optimizer_is_written_out_here_and_tried() -> None:
    assert BY_HAND.keys() == {name_of(settings) for settings in SETTINGS} == OPTIMIZER_SETTINGS.keys()


def some_gradients(seed: int, steps: int = STEPS) -> np.ndarray:
    """Gradients [steps, P] of very different sizes; one parameter never has any, one only now and then."""
    numbers = np.random.default_rng(seed)
    gradients = numbers.normal(size=(steps, SIZE)) * 10.0 ** np.linspace(-4, 2, SIZE)
    gradients[:, 3] = 0
    gradients[numbers.random(steps) < 0.8, 5] = 0
    return gradients.astype(np.float32).astype(np.float64)


@each_setting
def test_a_rule_agrees_with_its_paper_over_many_steps(settings: run_spec.Optimizer) -> None:
    gradients = some_gradients(seed=1)
    rates = [0.01 * (1 - step / STEPS) for step in range(STEPS)]
    weights = torch.linspace(-1, 1, SIZE)
    expected = BY_HAND[name_of(settings)](weights.double().tolist(), gradients, rates, settings)
    optimizer = rule_for(settings, SIZE)
    for gradient, rate in zip(gradients, rates, strict=True):
        optimizer.apply(weights, torch.from_numpy(gradient).float(), rate)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=2e-5, atol=2e-6)


def test_rmsprop_has_epsilon_inside_the_root_and_starts_from_zero() -> None:
    weights = vector(0.0)
    rule_for(RmsPropSettings(decay=0.99, epsilon=0.1), 1).apply(weights, vector(1.0), 1.0)
    # 1 / sqrt(0.01 + 0.1). With epsilon outside it would be 1 / (0.1 + 0.1) = 5; with g0 = 1, 1 / sqrt(1.1) = 0.95.
    assert weights.item() == pytest.approx(-3.0151134, rel=1e-6)


@each_setting
def test_weights_and_slots_are_changed_in_place(settings: run_spec.Optimizer) -> None:
    """A holder of the vector or a slot sees every update: no step may put another tensor in its place."""
    weights = torch.ones(SIZE)
    optimizer = rule_for(settings, SIZE)
    slots = dict(optimizer.slots)
    before = {name: slot.clone() for name, slot in slots.items()}
    optimizer.apply(weights, torch.full((SIZE,), 2.0), 0.1)
    assert (weights < 1).all()
    assert all(optimizer.slots[name] is slot for name, slot in slots.items())
    assert not any(torch.equal(slot, before[name]) for name, slot in slots.items())


@each_setting
def test_slots_are_the_whole_state_of_a_rule(settings: run_spec.Optimizer) -> None:
    """A fresh optimizer with copied slots continues bit for bit: this is what a checkpoint relies on."""
    gradients = torch.from_numpy(some_gradients(seed=4, steps=40)).float()
    weights, optimizer = torch.zeros(SIZE), rule_for(settings, SIZE)
    for gradient in gradients[:20]:
        optimizer.apply(weights, gradient, 0.01)
    copied, fresh = weights.clone(), rule_for(settings, SIZE)
    assert fresh.slots.keys() == optimizer.slots.keys()
    for name, slot in optimizer.slots.items():
        fresh.slots[name].copy_(slot)
    for gradient in gradients[20:]:
        optimizer.apply(weights, gradient, 0.01)
        fresh.apply(copied, gradient, 0.01)
    assert torch.equal(weights, copied)


def test_the_first_step_of_a_small_gradient_is_ten_learning_rates() -> None:
    """A gradient of 1e-3, in learning rates: over √(0.01 · 1e-6)."""
    optimizer = rule_for(RmsPropSettings(epsilon=1e-12), 1)
    weights = torch.zeros(1)
    optimizer.apply(weights, torch.tensor([1e-3]), 1.0)
    assert -float(weights) == pytest.approx(10.0, rel=0.01)
