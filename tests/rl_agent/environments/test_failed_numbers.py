"""A number that nothing can be learned from costs the game that it is in, as an exception does, and nothing else."""

import math
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.errors import PsRlError
from ps_common.protocol.names import MOST_REWARD
from rl_agent.environments.failures import MOST_OBSERVATION, FailureCount, NumberCheck, wrong_numbers
from rl_agent.environments.interface import Environments, Stepped
from rl_agent.environments.spaces import ObservationSpace, packed, packed_space
from tests.rl_agent.environments.counting_environments import NUMBERS, STEPS, Counts, Reuses

pytestmark = pytest.mark.filterwarnings("ignore:.*WARN")  # Gymnasium's checker warns of most of these environments

NAN, INF = math.nan, math.inf
WRONG = [NAN, INF, -INF, 2 * MOST_OBSERVATION]
PLAIN = ObservationSpace((3,), np.dtype(np.float32))


class Raises(Counts):
    """Fails in the fourth step of each second game."""

    games = 0

    def reset(self, **given: Any) -> Any:
        self.games += 1
        return super().reset(**given)

    def is_at_fault(self) -> bool:
        return bool(self.number == 1 and self.games % 2 == 0 and self.t == 4)

    def step(self, action: Any) -> Any:
        if self.number == 1 and self.games % 2 == 0 and self.t == 3:
            raise OSError("no link")
        return super().step(action)


class Shows(Raises):
    step = Counts.step

    def shown(self) -> Any:
        return np.full(3, NAN if self.is_at_fault() else self.number * 50 + self.t, np.float32)


class Pays(Raises):
    step = Counts.step

    def reward(self) -> Any:
        return -10 * MOST_REWARD if self.is_at_fault() else float(self.t)


def played(environments: Environments, steps: int = 5 * STEPS) -> list[Stepped]:
    environments.reset(0)
    return [environments.step(np.zeros(environments.count, np.int64)) for _ in range(steps)]


@pytest.mark.parametrize("fault", [Shows, Pays])
def test_a_game_with_such_a_number_is_what_one_with_an_exception_is(made: Any, fault: type[Counts]) -> None:
    counters = {Raises: [1, 0], fault: [1, 0]}  # of the games that environment 1 begins, whichever object plays them

    def steps_of(kind: type[Counts]) -> list[Stepped]:
        class Game(kind):  # type: ignore[misc, valid-type]
            @property
            def games(self) -> int:
                return counters[kind][0]

            @games.setter
            def games(self, value: int) -> None:
                counters[kind][0] += self.number

        numbers = iter([0, 1] + [1] * 10)
        return played(made(lambda _: Game(NUMBERS, next(numbers)), endless=True, forgives=True, most_failures=1.0))

    expected, seen = steps_of(Raises), steps_of(fault)
    assert sum(step.failed is not None for step in expected) > 2
    for one, other in zip(expected, seen, strict=True):
        for field in fields(Stepped)[:-1]:  # but for the metrics
            assert np.array_equal(getattr(one, field.name), getattr(other, field.name)), field.name


def test_too_many_such_numbers_end_the_worker_and_the_first_is_an_error_where_nothing_is_forgiven(made: Any) -> None:
    with pytest.raises(PsRlError, match=r"mine:Game: environment 1: it returned the reward -1e\+09 \(beyond.*--most-f"):
        played(made(lambda number: Pays(NUMBERS, number), forgives=True), 20 * STEPS)
    with pytest.raises(PsRlError, match=r"^mine:Game: environment 1 returned an observation with nan in it$"):
        played(made(lambda number: Shows(NUMBERS, number)))


@given(
    rows=st.lists(st.lists(st.sampled_from([0.0, -3.0, 1e10, 1.1e10, INF, NAN]), min_size=3, max_size=3), min_size=1),
    most=st.sampled_from([2.0, 1e10]),
)
def test_wrong_numbers_are_those_that_a_plain_loop_finds(rows: list[list[float]], most: float) -> None:
    found = wrong_numbers(np.array(rows, np.float32), most)
    expected = {row: [x for x in numbers if not abs(x) <= most * 1.0001] for row, numbers in enumerate(rows)}
    assert {row: number.partition(" ")[0] for row, number in found.items()} == {
        row: f"{numbers[0]:g}" for row, numbers in expected.items() if numbers
    }


def check(space: ObservationSpace = PLAIN, rows: int = 2, **given: Any) -> NumberCheck:
    """A check of environments that have just been reset, and show 1 everywhere."""
    made = NumberCheck("mine", space, FailureCount("mine", 1.0), **given)
    made.first(np.ones((rows, *space.shape), space.dtype))
    return made


def step_of(observations: Any, **changes: Any) -> Stepped:
    count = len(observations)
    nothing = np.zeros(count, np.bool_)
    return replace(Stepped(observations, np.zeros(count, np.float32), nothing, nothing, None), **changes)


@pytest.mark.parametrize("number", WRONG)
def test_no_such_number_comes_through(number: float) -> None:
    """Neither at a reset, nor in a step, nor at the reset after it, nor in last observations, nor in packed ones."""
    wrong = np.ones((2, 3), np.float32)
    wrong[1, 2] = number
    assert check().first(wrong).tolist() == [[1, 1, 1], [1, 1, 0]]
    for begin in (None, lambda row: wrong[row]):
        stepped = check(begin=begin).step(step_of(wrong))
        assert stepped.observations.tolist() == [[1, 1, 1], [1, 1, 0]]
        assert stepped.failed is not None
        assert (stepped.truncated.tolist(), stepped.failed.tolist()) == ([False, True], [False, True])
    last = check().step(
        step_of(np.ones((2, 3), np.float32), truncated=np.array([False, True]), final_observations=wrong)
    )
    assert last.final_observations is not None
    assert last.final_observations[1].tolist() == [1, 1, 1]
    space = packed_space([("image", (1, 2, 2), np.uint8), ("vector", (3,), np.float32), ("mask", (2,), np.uint8)])
    seen = packed(space, [np.full((2, 1, 2, 2), 255, np.uint8), wrong, np.ones((2, 2), np.uint8)])
    came = check(space).step(step_of(seen)).observations
    assert [part.of(came).tolist() for part in space.parts[::2]] == [[[[[255] * 2] * 2]] * 2, [[1, 1]] * 2]
    assert space.parts[1].of(came).tolist() == [[1, 1, 1], [1, 1, 0]]
    assert wrong[1, 2] == number or math.isnan(number), "the environment's own array stays as it is"


def test_the_last_observation_of_a_game_that_ended_by_itself_is_not_looked_at() -> None:
    seen = np.zeros((2, 3), np.float32)
    ended = step_of(seen, terminated=np.ones(2, np.bool_), final_observations=np.full_like(seen, NAN))
    assert check().step(ended) is ended


def test_a_game_of_a_vector_environment_plays_on_and_does_not_count(made: Any) -> None:
    class Vectors(Reuses):
        space = NUMBERS
        steps = 0

        def step(self, actions: Any) -> Any:
            self.steps += 1
            seen, rewards, *rest = super().step(actions)
            return seen, np.where([False, self.steps == 3], NAN, rewards), *rest

    steps = played(made(Vectors, forgives=True), 2 * STEPS)
    failed = [(t, step.failed.tolist()) for t, step in enumerate(steps, start=1) if step.failed is not None]
    assert failed == [(3, [False, True]), (STEPS, [False, True])]
