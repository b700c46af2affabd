"""Returns and advantages against their definitions, written out episode by episode in float64, with no recursion."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from rl_agent.algorithms.returns import Steps, lambda_returns, vtrace

DISCOUNT = 0.9
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Experience:
    """Random [T, B] tensors in float64; `terminated` and `truncated` end episodes by chance."""

    rewards: Array
    values: Array
    next_values: Array
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]

    @classmethod
    def random(cls, seed: int, *, steps: int = 12, environments: int = 3, end: float = 0.15) -> "Experience":
        chance = np.random.default_rng(seed)
        rewards, values, after = chance.normal(size=(3, steps, environments))
        terminated, truncated = chance.random(size=(2, steps, environments)) < end
        # The observation after a step is seen again as the next step's, unless the episode ends in between.
        goes_on = ~(terminated | truncated)
        goes_on[-1] = False
        next_values = np.where(goes_on, np.roll(values, -1, axis=0), after)
        return cls(rewards, values, next_values, terminated, truncated)

    @property
    def steps(self) -> Steps:
        return Steps(
            rewards=torch.tensor(self.rewards),
            discounts=torch.tensor(np.where(self.terminated, 0.0, DISCOUNT)),
            continues=torch.tensor(np.where(self.terminated | self.truncated, 0.0, 1.0)),
        )

    def advantages(self, lambda_: float) -> Array:
        """The result of the code under test: returns less values."""
        steps, next_values = self.steps, torch.tensor(self.next_values)
        before = [tensor.clone() for tensor in (*vars(steps).values(), next_values)]
        returns = lambda_returns(steps, next_values, lambda_)
        after = (*vars(steps).values(), next_values)
        assert all(map(torch.equal, before, after)), "an input was changed"
        advantages: Array = returns.numpy() - self.values
        return advantages

    def vtrace(self, log_ratios: Array, lambda_: float = 1.0) -> tuple[Array, Array]:
        """Targets and advantages."""
        values, next_values = torch.tensor(self.values), torch.tensor(self.next_values)
        targets, advantages = vtrace(self.steps, values, next_values, torch.tensor(log_ratios), lambda_)
        return targets.numpy(), advantages.numpy()


def n_step_return(experience: Experience, t: int, n: int, b: int) -> float:
    """r[t] + γ r[t+1] + … + γⁿ V'[t+n−1]; nothing is hoped for after a termination."""
    last = t + n - 1
    total = sum(DISCOUNT**k * experience.rewards[t + k, b] for k in range(n))
    hope = 0.0 if experience.terminated[last, b] else experience.next_values[last, b]
    return float(total + DISCOUNT**n * hope)


def steps_left(experience: Experience, t: int, b: int) -> int:
    """Steps from t to the last one of its episode, or of the unroll, both counted."""
    ends = np.flatnonzero((experience.terminated | experience.truncated)[t:, b])
    return int(ends[0]) + 1 if len(ends) else len(experience.rewards) - t


def advantage_by_definition(experience: Experience, t: int, b: int, lambda_: float) -> float:
    """The exponentially weighted mean of all n-step advantages (Schulman et al. 2016, equation 16, first line)."""
    longest = steps_left(experience, t, b)
    weights = [(1 - lambda_) * lambda_ ** (n - 1) for n in range(1, longest)]
    weights.append(lambda_ ** (longest - 1))
    returns = [n_step_return(experience, t, n, b) for n in range(1, longest + 1)]
    return float(np.dot(weights, returns) - experience.values[t, b])


@pytest.mark.parametrize("lambda_", [0.0, 0.5, 0.95, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_advantages_are_the_weighted_mean_of_all_n_step_advantages(seed: int, lambda_: float) -> None:
    experience = Experience.random(seed)
    assert experience.terminated.any()
    assert experience.truncated.any()
    expected = [
        [advantage_by_definition(experience, t, b, lambda_) for b in range(experience.rewards.shape[1])]
        for t in range(len(experience.rewards))
    ]
    np.testing.assert_allclose(experience.advantages(lambda_), expected, rtol=1e-12, atol=1e-12)


def test_with_lambda_1_advantage_and_value_add_up_to_the_n_step_return() -> None:
    experience = Experience.random(0, steps=5, environments=1, end=0.0)
    returns = experience.advantages(1.0) + experience.values
    for t in range(5):
        assert returns[t, 0] == pytest.approx(n_step_return(experience, t, 5 - t, 0))


def two_steps(*, terminated: bool, truncated: bool) -> Experience:
    """The first of two steps ends its episode, or does not. Numbers small enough to be added up by hand."""
    return Experience(
        rewards=np.array([[1.0], [2.0]]),
        values=np.array([[10.0], [30.0]]),
        next_values=np.array([[30.0], [40.0]]),
        terminated=np.array([[terminated], [False]]),
        truncated=np.array([[truncated], [False]]),
    )


@pytest.mark.parametrize(
    ("terminated", "truncated", "first"),
    [
        # δ[1] = 2 + 0.9·40 − 30 = 8 in all of them; δ[0] = 1 + 0.9·30 − 10 = 18 unless the episode terminated.
        pytest.param(False, False, 18 + 0.9 * 0.5 * 8, id="an episode that goes on learns from what follows"),
        pytest.param(False, True, 18, id="a truncated one is bootstrapped and learns nothing from the next episode"),
        pytest.param(True, False, 1 - 10, id="a terminated one is worth its reward alone"),
        pytest.param(True, True, 1 - 10, id="termination wins over truncation"),
    ],
)
def test_the_end_of_an_episode_by_hand(terminated: bool, truncated: bool, first: float) -> None:
    advantages = two_steps(terminated=terminated, truncated=truncated).advantages(0.5)
    np.testing.assert_allclose(advantages, [[first], [8.0]])


# -- V-trace ----------------------------------------------------------------------------------------------------------


def log_ratios_of(experience: Experience, seed: int) -> Array:
    """Some actions have become more probable, others less."""
    return np.random.default_rng(seed).normal(size=experience.rewards.shape)


def vtrace_by_definition(experience: Experience, log_ratios: Array, s: int, b: int) -> float:
    """Espeholt et al. 2018, equation 1: V(x_s) + Σ_t γ^{t−s} (Π_{i<t} c_i) ρ_t (r_t + γ V(x_{t+1}) − V(x_t))."""
    truncated_ratios = np.minimum(1.0, np.exp(log_ratios[:, b]))
    target = float(experience.values[s, b])
    for t in range(s, s + steps_left(experience, s, b)):
        hope = 0.0 if experience.terminated[t, b] else DISCOUNT * experience.next_values[t, b]
        error = truncated_ratios[t] * (experience.rewards[t, b] + hope - experience.values[t, b])
        target += DISCOUNT ** (t - s) * np.prod(truncated_ratios[s:t]) * error
    return target


@pytest.mark.parametrize("seed", range(3))
def test_v_trace_is_its_definition(seed: int) -> None:
    experience = Experience.random(seed)
    log_ratios = log_ratios_of(experience, seed)
    steps, environments = experience.rewards.shape
    targets, advantages = experience.vtrace(log_ratios)
    for b in range(environments):
        by_definition = [vtrace_by_definition(experience, log_ratios, s, b) for s in range(steps)]
        np.testing.assert_allclose(targets[:, b], by_definition, rtol=1e-12)
        for t in range(steps):
            goes_on = steps_left(experience, t, b) > 1
            following = by_definition[t + 1] if goes_on else experience.next_values[t, b]
            hope = 0.0 if experience.terminated[t, b] else DISCOUNT * following
            assert advantages[t, b] == pytest.approx(experience.rewards[t, b] + hope - experience.values[t, b])


@pytest.mark.parametrize("lambda_", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("ratio", [0.0, 5.0], ids=["equal policies", "every action has become more probable"])
def test_v_trace_of_a_policy_that_has_not_moved_away_is_the_lambda_return(lambda_: float, ratio: float) -> None:
    """Ratios above 1 are cut off at 1."""
    experience = Experience.random(4)
    targets, advantages = experience.vtrace(np.full(experience.rewards.shape, ratio), lambda_)
    np.testing.assert_allclose(advantages, experience.advantages(lambda_), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(targets, experience.advantages(lambda_) + experience.values, rtol=1e-12)
