"""The contents of unrolls, for games whose every step is known."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from ps_common.protocol.messages import Episode
from ps_common.settings.run_spec import A3CSettings, Environment
from rl_agent.environments.make import make_environments
from rl_agent.rollouts import Decision, RolloutCollector, State, learner_rewards
from tests.rl_agent.scripted_environments import Game, ScriptedActor, ScriptedEnvironments, value_of

DISCOUNT = 0.9
ENDLESS = Game(rewards=(0.0,) * 1000, end="terminated")


class RewardsAndObservations(NamedTuple):
    rewards: Tensor
    observations: Tensor


def collector_of(
    *scripts: list[Game], unroll_length: int, actor: ScriptedActor | None = None, commits: bool = False
) -> RolloutCollector:
    return RolloutCollector(
        ScriptedEnvironments(*scripts),
        actor or ScriptedActor(),
        unroll_length=unroll_length,
        discount=DISCOUNT,
        seed=1,
        commits_next_action=commits,
    )


def game(*rewards: float, end: str = "terminated", lives_lost: tuple[int, ...] = ()) -> Game:
    return Game(rewards, end, lives_lost)  # type: ignore[arg-type]


def test_an_unroll_holds_observations_actions_and_rewards() -> None:
    environments = ScriptedEnvironments([game(1, 2, 3)], [game(10, 20, 30, 40)])
    collector = RolloutCollector(environments, ScriptedActor(), unroll_length=4, discount=DISCOUNT, seed=7)
    unroll = collector.collect()
    seen = [[(0, 0, 0), (1, 0, 0)], [(0, 0, 1), (1, 0, 1)], [(0, 0, 2), (1, 0, 2)], [(0, 1, 0), (1, 0, 3)]]
    values = [[value_of(*where) for where in step] for step in seen]
    assert unroll.observations[:-1].tolist() == [[list(where) for where in step] for step in seen]
    assert unroll.observations[-1].tolist() == [[0, 1, 1], [1, 1, 0]]
    assert unroll.starts.tolist() == [[True] * 2, [False] * 2, [False] * 2, [True, False], [False, True]]
    assert unroll.recorded["values"].tolist() == values
    assert unroll.recorded["log_probabilities"].tolist() == [[-value for value in step] for step in values]
    assert unroll.actions.tolist() == [[0, 0], [1, 1], [2, 2], [0, 3]]
    assert unroll.rewards.tolist() == [[1, 10], [2, 20], [3, 30], [1, 40]]
    assert environments.taken == unroll.actions.tolist()
    assert environments.seeds == [7]


# -- recurrent state --------------------------------------------------------------------------------------------------


def test_recurrent_state_is_carried_across_unrolls_and_starts_are_marked() -> None:
    collector = collector_of([game(0, 0, 0)], [ENDLESS], unroll_length=4)
    first, second = collector.collect(), collector.collect()
    assert first.initial_state[0].tolist() == [0, 0]
    assert first.final_state[0].tolist() == [1, 4], "of its second game the first row has seen one observation"
    assert second.initial_state[0].tolist() == [1, 4]
    assert second.final_state[0].tolist() == [2, 8]
    assert first.starts[-1].tolist() == second.starts[0].tolist() == [False, False]


# -- one environment --------------------------------------------------------------------------------------------------


def test_the_unroll_of_one_environment_ends_with_its_episode() -> None:
    """As in the paper's pseudocode: until terminal s_t or t − t_start = t_max."""
    collector = collector_of([game(1, 2, 3), game(4, 5, 6, 7, 8, end="truncated")], unroll_length=4)
    unrolls = [(u.rewards[:, 0].tolist(), u.observations[:, 0, 1:].tolist()) for u in iter_copies(collector, 4)]
    assert unrolls == [
        ([1, 2, 3], [[0, 0], [0, 1], [0, 2], [1, 0]]),
        ([4, 5, 6, 7], [[1, 0], [1, 1], [1, 2], [1, 3], [1, 4]]),
        ([8], [[1, 4], [2, 0]]),
        ([1, 2, 3], [[2, 0], [2, 1], [2, 2], [3, 0]]),
    ]


def iter_copies(collector: RolloutCollector, unrolls: int) -> list[RewardsAndObservations]:
    """Copies of the tensors, which the next unroll overwrites."""
    collected = (collector.collect() for _ in range(unrolls))
    return [RewardsAndObservations(unroll.rewards.clone(), unroll.observations.clone()) for unroll in collected]


def test_an_unroll_that_is_cut_short_has_all_its_parts_equally_long() -> None:
    collector = collector_of([game(1, 2, end="truncated")], unroll_length=4)
    collector.collect()
    unroll = collector.collect()
    assert unroll.steps == 2
    assert unroll.starts[:, 0].tolist() == [True, False, True]
    torch.testing.assert_close(unroll.discounts[:, 0], torch.tensor([DISCOUNT, DISCOUNT]))
    assert unroll.continues[:, 0].tolist() == [1, 0]
    assert unroll.recorded["values"][:, 0].tolist() == [value_of(0, 1, 0), value_of(0, 1, 1)]
    assert unroll.actions[:, 0].tolist() == [0, 1]
    assert [cut.t for cut in unroll.cut_offs] == [1]
    assert unroll.initial_state[0].tolist() == [2], "the start at its first step resets it"
    assert unroll.final_state[0].tolist() == [2]


# -- the committed action (Sarsa) -------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("rows", [1, 2])
def test_the_action_after_an_unroll_is_chosen_in_it_and_taken_in_the_next(end: str, rows: int) -> None:
    actor = ScriptedActor()
    environments = ScriptedEnvironments(*[[game(0, 0, 0, end=end)]] * rows)
    collector = RolloutCollector(
        environments, actor, unroll_length=2, discount=DISCOUNT, seed=1, commits_next_action=True
    )
    decided: list[list[int]] = []
    for _ in range(6):
        unroll = collector.collect()
        assert len(unroll.actions) == len(unroll.rewards) + 1
        assert decided[-1:] in ([], [unroll.actions[0].tolist()]), "another action was committed to"
        decided[-1:] = unroll.actions.tolist()
    assert decided[:-1] == environments.taken
    assert len(actor.looks) == len(decided), "each observation is decided on once"


# -- lives, scores, buffers -------------------------------------------------------------------------------------------


def test_a_lost_life_ends_the_return_but_not_the_game() -> None:
    collector = collector_of([game(1, 1, 1, 1, lives_lost=(1,))], [ENDLESS], unroll_length=4)
    unroll = collector.collect()
    torch.testing.assert_close(unroll.discounts[:, 0], torch.tensor([DISCOUNT, 0.0, DISCOUNT, 0.0]))
    assert unroll.continues[:, 0].tolist() == [1, 0, 1, 0]
    assert unroll.observations[:-1, 0, 1:].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
    assert unroll.starts[:, 0].tolist() == [True, False, False, False, True], "recurrent state is of the whole game"
    assert list(collector.take_episodes()) == [Episode(4.0, 4)]


def test_scores_are_those_of_whole_games_across_unrolls() -> None:
    collector = collector_of([game(100, -7, 0.5), game(1)], [game(1, 1, 1, 1, 1, end="truncated")], unroll_length=2)
    collector.collect()
    assert list(collector.take_episodes()) == []
    collector.collect()
    assert list(collector.take_episodes()) == [Episode(93.5, 3), Episode(1.0, 1)]
    collector.collect()
    assert list(collector.take_episodes()) == [Episode(5.0, 5)]


class AtRandom:
    """Chooses one of two actions at random."""

    def __init__(self) -> None:
        self._chance = torch.Generator().manual_seed(0)

    def initial_state(self, count: int) -> State:
        return ()

    def act(self, observations: Tensor, state: State, starts: Tensor) -> Decision:
        return Decision(torch.randint(2, (len(observations),), generator=self._chance), (), {})


def test_every_game_of_a_real_environment_is_reported_whole() -> None:
    """CartPole pays 1 for each step, so a game's score is its length; and no step is in two games or in none."""
    environments = make_environments(Environment(id="CartPole-v1", max_episode_steps=15), count=4)
    collector = RolloutCollector(environments, AtRandom(), unroll_length=7, discount=DISCOUNT, seed=3)
    ends = sum(int((collector.collect().continues == 0).sum()) for _ in range(40))
    environments.close()
    games = list(collector.take_episodes())
    assert len(games) == ends
    assert all(game.episode_return == game.length <= 15 for game in games)
    assert 40 * 7 * 4 - 4 * 15 < sum(game.length for game in games) <= 40 * 7 * 4


def test_the_learner_sees_rewards_clipped_and_then_scaled() -> None:
    unroll = collector_of([game(-3, 0.5, 7, 0)], [ENDLESS], unroll_length=3).collect()
    for clip, scale, learned in ((0.0, 1.0, [-3, 0.5, 7]), (1.0, 1.0, [-1, 0.5, 1]), (2.0, 0.5, [-1, 0.25, 1])):
        settings = A3CSettings(reward_clip=clip, reward_scale=scale)
        assert learner_rewards(unroll.rewards, settings, None)[:, 0].tolist() == learned
    assert unroll.rewards[:, 0].tolist() == [-3, 0.5, 7]
