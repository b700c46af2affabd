"""Self-imitation: what is remembered, how often it is drawn, and its loss, against versions written out."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import A3CSettings, Environment, NetworkSettings, RunSpec
from rl_agent.algorithms.a3c import A3C
from rl_agent.algorithms.self_imitation import PRIORITY_EXPONENT, VALUE_WEIGHT, Remembered, SelfImitation
from rl_agent.environments.spaces import DiscreteActions
from rl_agent.networks.compatibility import check_agent
from rl_agent.networks.policies import Categorical
from rl_eval.spaces_record import PolicySpaces
from tests.rl_agent.experience import ACTIONS, DISCOUNT, Experience, experience, trajectory_of
from tests.rl_agent.observation_spaces import numbers
from tests.rl_agent.written_out_a3c import LinearActorCritic

MODEL = LinearActorCritic(seed=0)
LOW = -100.0  # a value below every return


@dataclass
class Played:
    """Unrolls of one environment, each a few steps with rewards."""

    memory: SelfImitation
    steps: int = 0

    def unroll(self, *steps: tuple[float, str], value: float = LOW, environments: int = 1, unit: float = 1.0) -> None:
        """Each step is a reward and how it ended: "", "terminated" or "truncated". Its action is its number."""
        seen = experience(self.steps, *(ended for _, ended in steps))
        numbered = Experience(
            observations=seen.observations,
            actions=np.arange(self.steps, self.steps + len(steps) + 1),
            rewards=np.array([reward for reward, _ in steps]),
            ends=seen.ends,
            last_observations=seen.last_observations,
        )
        self.steps += len(steps)
        trajectory = trajectory_of(
            *[numbered] * environments, recorded=lambda seen: {"values": [value] * len(seen.rewards)}
        )
        self.memory.remember(trajectory, trajectory.rewards, unit=unit)
        for buffer in (trajectory.observations, trajectory.actions, trajectory.rewards):
            buffer.zero_()  # as the next unroll overwrites them

    def remembered(self) -> dict[int, float]:
        """The returns of the remembered steps by their numbers, as far as 1,000 draws show them."""
        drawn = self.memory.draw(1)
        found: dict[int, float] = {}
        for _ in range(1000 if drawn else 0):
            drawn = self.memory.draw(1)
            assert drawn is not None
            rows, steps = drawn
            found[int(steps.actions)] = float(steps.returns)
            self.memory.set_priorities(rows, torch.zeros(1))  # so that others come to their turn
        return found


def played(capacity: int = 100) -> Played:
    return Played(SelfImitation(capacity, discount=DISCOUNT, seed=0))


def test_a_return_is_the_discounted_sum_of_the_rewards_until_its_end_also_across_unrolls() -> None:
    run = played()
    run.unroll((0.0, ""), (1.0, "terminated"), (0.5, ""))
    assert run.remembered() == pytest.approx({0: DISCOUNT, 1: 1.0})
    run.unroll((0.0, ""), (0.0, ""))
    assert set(run.remembered()) == {0, 1}
    run.unroll((2.0, "terminated"), (1.0, ""), (1.0, ""))
    g = DISCOUNT
    assert run.remembered() == pytest.approx({0: g, 1: 1.0, 2: 0.5 + 2 * g**3, 3: 2 * g**2, 4: 2 * g, 5: 2.0})


@pytest.mark.parametrize(
    ("reward", "value", "kept"), [(1.0, 0.5, True), (1.0, 1.5, False), (-1.0, -3.0, False), (0.0, -1.0, False)]
)
def test_a_step_is_remembered_if_its_return_is_above_0_and_its_value(reward: float, value: float, kept: bool) -> None:
    run = played()
    run.unroll((reward, "terminated"), value=value)
    assert bool(run.remembered()) is kept


def test_a_return_is_drawn_in_the_newest_unit_whatever_it_was_when_it_was_earned() -> None:
    """Two games of the same scores: the unit of rewards grows from 2 to 10 between them, and within the second one."""
    run = played()
    run.unroll((3.0, "terminated"), unit=2.0)  # 6 points
    run.unroll((1.0, ""), unit=2.0)
    run.unroll((0.4, "terminated"), unit=10.0)  # 2 points, then 4
    returns = {}
    for _ in range(200):
        drawn = run.memory.draw(1, unit=10.0)
        assert drawn is not None
        returns[int(drawn[1].actions)] = float(drawn[1].returns)
        run.memory.set_priorities(drawn[0], torch.zeros(1))
    assert returns == pytest.approx({0: 0.6, 1: 0.2 + DISCOUNT * 0.4, 2: 0.4})


def test_a_return_that_was_cut_off_is_forgotten() -> None:
    run = played()
    run.unroll((1.0, ""))
    run.unroll((1.0, "truncated"), (2.0, "terminated"))
    assert run.remembered() == {2: 2.0}


def test_steps_are_drawn_as_often_as_their_priorities_say() -> None:
    run = played()
    run.unroll((1.0, "terminated"), (4.0, "terminated"), value=0.0)
    drawn = [run.memory.draw(2) for _ in range(10_000)]
    second = sum(int((steps.actions == 1).sum()) for _, steps in filter(None, drawn)) / 20_000
    weight = 4**PRIORITY_EXPONENT
    assert second == pytest.approx(weight / (weight + 1), abs=0.015)


def learner(**settings: object) -> A3C:
    chosen = {"discount": DISCOUNT, "reward_clip": 0.0} | settings
    return A3C(MODEL.as_network(), Categorical(ACTIONS), A3CSettings(**chosen), device=torch.device("cpu"), seed=0)  # type: ignore[arg-type]


def test_the_loss_is_that_of_the_unroll_and_the_weighted_one_of_remembered_steps() -> None:
    """−log π(a|s) (R − V)₊ + c ½ (R − V)₊², and its gradient, in which the first advantage is a constant."""
    seen = experience(5, "", "", "terminated", "", "terminated")
    trajectory = trajectory_of(seen, recorded=MODEL.recorded)
    trajectory.rewards.abs_()
    plain, imitating = learner(), learner(imitation_weight=0.5, imitation_samples=1)
    (batch,) = imitating.batches(trajectory)
    memory = imitating._imitation
    assert memory is not None
    rows = torch.zeros(1, dtype=torch.int64)
    steps = Remembered(*(torch.tensor(part) for part in (seen.observations[1:2], seen.actions[1:2], [50.0], [0.0])))
    memory.draw = lambda count, *, unit: (rows, steps)  # type: ignore[method-assign]
    x, action, returned = seen.observations[1], int(seen.actions[1]), 50.0
    advantage = returned - MODEL.value(x)
    assert advantage > 0
    expected = -np.log(MODEL.policy(x)[action]) * advantage + VALUE_WEIGHT * 0.5 * advantage**2
    difference = imitating.loss(batch).total - plain.loss(batch).total
    assert float(difference.detach()) == pytest.approx(0.5 * expected)

    def gradient(algorithm: A3C) -> np.ndarray:
        parts = torch.autograd.grad(algorithm.loss(batch).total, list(algorithm.network.parameters()))
        return torch.cat([part.reshape(-1) for part in parts]).numpy()

    by_hand = MODEL.gradient_of_transition(x, action, returned, value_weight=VALUE_WEIGHT, entropy_weight=0.0)
    np.testing.assert_allclose(gradient(imitating) - gradient(plain), 0.5 * by_hand, rtol=1e-9, atol=1e-9)


def test_a_step_that_is_worth_its_return_by_now_is_no_longer_imitated() -> None:
    imitating = learner(imitation_weight=0.5, imitation_samples=1)
    trajectory = trajectory_of(experience(5, "", "terminated"), recorded=MODEL.recorded)
    (batch,) = imitating.batches(trajectory)
    memory = imitating._imitation
    assert memory is not None
    low = Remembered(batch.observations[0, :1], batch.actions[0, :1], torch.tensor([-50.0]), torch.tensor([0.0]))
    memory.draw = lambda count, *, unit: (torch.zeros(1, dtype=torch.int64), low)  # type: ignore[method-assign]
    assert float(imitating.loss(batch).total.detach()) == pytest.approx(float(learner().loss(batch).total.detach()))


def test_with_an_lstm_it_is_refused() -> None:
    run = RunSpec(
        environment=Environment(id="CartPole-v1"),
        algorithm=A3CSettings(imitation_weight=0.1),
        network=NetworkSettings(lstm=8),
    )
    with pytest.raises(SettingsError, match="--imitation-weight: remembered steps have no LSTM state"):
        check_agent(run, PolicySpaces(numbers(4), DiscreteActions(2, ("left", "right"))))


def test_what_is_remembered_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for five observations, kept and in returns that have not ended, and the newest are drawn."""
    seen = trajectory_of(experience(0, ""), recorded=lambda seen: {"values": [LOW] * len(seen.rewards)})
    step_bytes = seen.observations[0, 0].nbytes
    monkeypatch.setattr("rl_agent.algorithms.self_imitation.IMITATION_BYTES", 5 * step_bytes)
    run = played(capacity=1000)
    run.unroll(*[(1.0, "")] * 20)
    assert sum(map(len, run.memory._open[0])) <= 10
    run.unroll(*[(1.0, "terminated")] * 12)
    assert set(run.remembered()) == set(range(27, 32))
    drawn = run.memory.draw(32)
    assert drawn is not None, "a full memory is drawn from, though a batch is larger"
    assert len(drawn[1]) == 32
    assert run.memory._kept is not None
    assert run.memory._kept.observations.nbytes <= 5 * step_bytes
