"""An unroll with a number that nothing can be learned from is dropped, whole, and hurts nothing after it."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from ps_common.errors import PsRlError
from ps_common.protocol.messages import Episode
from ps_common.protocol.names import MOST_REWARD
from rl_agent.algorithms.self_imitation import SelfImitation
from rl_agent.environments.interface import (
    MOST_OBSERVATION,
    Stepped,
    Unsound,
    checked,
    sound_observations,
    unsound_observation,
    unsound_step,
)
from rl_agent.environments.spaces import ObservationSpace, packed, packed_space
from rl_agent.networks.running_statistics import ReturnNormalization, observe
from rl_agent.rollouts import MOST_DROPPED, RolloutCollector
from tests.rl_agent.scripted_environments import Game, ScriptedActor, ScriptedEnvironments
from tests.rows import row

NAN, INF = math.nan, math.inf


def rewards(*of_game: float, end: str = "terminated") -> Game:
    return Game(of_game, end)  # type: ignore[arg-type]


class Blinking(ScriptedEnvironments):
    """Shows this number, once, in row 1 after so many steps of all rows; 0: when they are reset."""

    def __init__(self, *scripts: list[Game], number: float, step: int, is_final: bool = False) -> None:
        super().__init__(*scripts)
        self.description = {"environment": "my_pkg:Blinking"}
        self._number, self._step, self._is_final, self._steps = number, step, is_final, 0

    def reset(self, seed: int) -> NDArray[Any]:
        return self._shown(super().reset(seed))

    def step(self, actions: NDArray[Any]) -> Stepped:
        self._steps += 1
        stepped = super().step(actions)
        self._shown(stepped.final_observations if self._is_final else stepped.observations)
        return checked(stepped, self.observations)

    def _shown(self, seen: Any) -> Any:
        if self._steps == self._step:
            seen[1, 2] = self._number
        return seen


class Watched:
    """A collector, and what it warned of."""

    def __init__(self, environments: ScriptedEnvironments, unroll_length: int = 3, **given: Any) -> None:
        self.warnings: list[str] = []
        self.actor = ScriptedActor()
        self.collector = RolloutCollector(
            environments, self.actor, unroll_length=unroll_length, discount=0.9, seed=0, warn=self.warnings.append,
            **given,
        )  # fmt: skip


def one_bad_reward(number: float) -> ScriptedEnvironments:
    """Two rows of games of four steps; the second reward of the second row's second game is this number."""
    good = rewards(1, 2, 3, 4)
    environments = ScriptedEnvironments([good], [good, rewards(1, number, 3, 4), good, good, good])
    environments.description = {"environment": "my_pkg:Bad"}
    return environments


@pytest.mark.parametrize("number", [NAN, INF, -INF, 10 * MOST_REWARD])
def test_an_unroll_with_such_a_reward_is_dropped_and_the_sentence_says_where_it_was(number: float) -> None:
    watched = Watched(one_bad_reward(number))
    first = watched.collector.collect().observations[:, 0, 1:].tolist()
    second = watched.collector.collect()
    assert first == [[0, 0], [0, 1], [0, 2], [0, 3]]
    assert second.observations[:, 0, 1:].tolist() == [[1, 2], [1, 3], [2, 0], [2, 1]], "steps 4 to 6 are missing"
    assert second.rewards.isfinite().all()
    assert watched.collector.dropped == 1
    (warning,) = watched.warnings
    remedy = " (beyond ±1e+08: clip or scale it)" if math.isfinite(number) else ""
    assert warning.startswith(
        f"my_pkg:Bad: environment 1 returned the reward {number:g}{remedy} in step 2 of its game: the unroll"
    )
    assert warning.endswith("(1 dropped so far)")


HUGE = float(np.finfo(np.float32).max)


def test_an_observation_that_is_not_sound_reaches_no_actor() -> None:
    for number, step in product([NAN, INF, HUGE, -2 * MOST_OBSERVATION], [0, 2]):
        with row(number, step):
            endless = [rewards(*[0.0] * 100)]
            watched = Watched(Blinking(endless, endless, number=number, step=step))
            unroll = watched.collector.collect()
            assert unroll.observations[:, 1, 2].tolist() == [3, 4, 5, 6]
            assert (torch.cat(watched.actor.looks).abs() <= MOST_OBSERVATION).all()
            when = "in step 2 of its game" if step else "when it was reset"
            remedy = " (beyond ±1e+10: clip or scale it)" if math.isfinite(number) else ""
            (warning,) = watched.warnings
            assert warning.startswith(
                f"my_pkg:Blinking: environment 1 returned an observation that holds {number:g}{remedy} {when}: "
            )


def test_the_last_observation_of_a_game_that_was_cut_off_counts_too() -> None:
    cut = [rewards(0, 0, end="truncated")]
    watched = Watched(Blinking([rewards(*[0.0] * 100)], cut, number=NAN, step=2, is_final=True))
    unroll = watched.collector.collect()
    assert watched.collector.dropped == 1
    assert all(cut_off.observations.isfinite().all() for cut_off in unroll.cut_offs)


def test_the_last_observation_of_a_game_that_goes_on_is_not_looked_at() -> None:
    nothing = np.zeros(2, dtype=np.bool_)
    seen = np.zeros((2, 3), np.float32)
    stepped = Stepped(seen, np.zeros(2, np.float32), ~nothing, nothing, np.full_like(seen, NAN))
    assert unsound_step(stepped, ObservationSpace((3,), np.dtype(np.float32))) is None


def test_an_observation_after_the_end_of_a_game_is_that_of_a_reset() -> None:
    watched = Watched(Blinking([rewards(0, 0)], [rewards(0, 0)], number=NAN, step=2))
    watched.collector.collect()
    assert "returned an observation that holds nan when it was reset: " in watched.warnings[0]


def test_many_numbers_within_the_bound_are_sound_together() -> None:
    seen = np.full((2, 1000), MOST_OBSERVATION, np.float32)
    space = ObservationSpace((1000,), np.dtype(np.float32))
    assert unsound_observation(seen, space) is None
    seen[1, 0] *= 2
    assert unsound_observation(seen, space) == Unsound(
        1, "an observation that holds 2e+10 (beyond ±1e+10: clip or scale it)", is_first=True
    )


@pytest.mark.parametrize("number", [NAN, INF])
def test_the_vector_of_a_packed_observation_is_looked_at_and_its_bytes_are_not(number: float) -> None:
    space = packed_space([("image", (1, 2, 2), np.uint8), ("vector", (3,), np.float32), ("mask", (2,), np.uint8)])
    parts = [np.full((1, 2, 2), 255, np.uint8), np.ones(3, np.float32), np.ones(2, np.uint8)]
    seen = np.stack([packed(space, parts)] * 2)
    assert unsound_observation(seen, space) is None
    vector = space.parts[1].of(seen)
    vector[1, 2] = number
    assert unsound_observation(seen, space) == Unsound(1, f"an observation that holds {number:g}", is_first=True)
    sound = sound_observations(seen, space)
    assert space.parts[1].of(sound).tolist() == [[1, 1, 1], [1, 1, 0]]
    assert (space.parts[0].of(sound) == 255).all()
    assert not np.isfinite(vector).all(), "the environment's own array stays as it is"


def test_games_with_a_part_in_a_dropped_unroll_are_not_reported_and_later_ones_are() -> None:
    """
    Unrolls are steps 1 to 3, 4 to 6 (dropped) and so on; games are steps 1 to 4, 5 to 8, 9 to 12. The server has
    counted no steps of the first two games of both rows that it could ascribe to them.
    """
    watched = Watched(one_bad_reward(NAN))
    reported: list[Episode] = []
    for _ in range(3):  # steps 1 to 3, 7 to 9, 10 to 12
        watched.collector.collect()
        reported += watched.collector.take_episodes()
    assert reported == [Episode(10.0, 4)] * 2


def test_an_environment_without_a_sound_game_ends_the_worker_and_is_named() -> None:
    broken = ScriptedEnvironments([rewards(0, NAN)], [rewards(0, 0)])
    broken.description = {"environment": "my_pkg:Broken"}
    watched = Watched(broken)
    with pytest.raises(PsRlError, match=r"^my_pkg:Broken: environment 0 .* reward nan in step 2 .* last 20 unrolls"):
        watched.collector.collect()
    assert watched.collector.dropped == MOST_DROPPED
    assert len(watched.warnings) == 2, "the 1st and the 10th"


def test_the_statistics_of_rewards_begin_anew_behind_the_gap() -> None:
    watched = Watched(one_bad_reward(NAN))
    returns = ReturnNormalization(discount=0.5, clip=0.0)
    counted = []
    for _ in range(2):
        unroll = watched.collector.collect()
        observe(returns, unroll.observations[:-1], unroll.rewards, unroll.continues, follows=not unroll.follows_dropped)
        counted.append(float(returns.take_added()["total"]))
    # The rewards of each row are 1 2 3, and behind the gap 3 4 of one game and 1 of the next.
    assert counted == [2 * (1 + 2.5 + 4.25), 2 * (3 + 5.5 + 1)]


def test_self_imitation_forgets_what_lies_before_the_gap() -> None:
    """Otherwise the end of the second game would be that of the first one's steps."""
    watched = Watched(one_bad_reward(NAN))
    memory = SelfImitation(64, discount=1.0, seed=0)
    for _ in range(2):
        unroll = watched.collector.collect()
        unroll.recorded["values"].zero_()
        memory.remember(unroll, unroll.rewards)
    drawn = memory.draw(1)
    assert drawn is not None
    found = {memory.draw(1)[1].returns.item() for _ in range(200)}  # type: ignore[index]
    assert found == {7.0, 4.0}
