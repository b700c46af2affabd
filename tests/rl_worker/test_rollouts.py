"""What an unroll holds, written down for games whose every step is known."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from common.errors import RunEnded
from common.messages import Episode
from common.run_spec import A3C as Settings
from common.run_spec import Environment, Network
from rl_worker.algorithms.a3c import A3C
from rl_worker.environments import make_environments
from rl_worker.gradients import FlatNetwork
from rl_worker.networks import policy_value_network
from rl_worker.rollouts import ActionChoice, RolloutCollector
from rl_worker.training import train
from tests.rl_worker.local_parameters import parameters_for
from tests.rl_worker.scripted_environments import Game, ScriptedEnvironments, act, value_of

DISCOUNT = 0.9
ENDLESS = Game(rewards=(0.0,) * 1000, end="terminated")


def collector_of(*scripts: list[Game], unroll_length: int) -> RolloutCollector:
    return RolloutCollector(ScriptedEnvironments(*scripts), unroll_length=unroll_length, discount=DISCOUNT, seed=1)


def game(*rewards: float, end: str = "terminated", lives_lost: tuple[int, ...] = ()) -> Game:
    return Game(rewards, end, lives_lost)  # type: ignore[arg-type]


def test_an_unroll_holds_what_was_seen_and_done() -> None:
    environments = ScriptedEnvironments([game(1, 2, 3)], [game(10, 20, 30, 40)])
    collector = RolloutCollector(environments, unroll_length=4, discount=DISCOUNT, seed=7)
    unroll = collector.collect(act)
    seen = [[(0, 0, 0), (1, 0, 0)], [(0, 0, 1), (1, 0, 1)], [(0, 0, 2), (1, 0, 2)], [(0, 1, 0), (1, 0, 3)]]
    values = [[value_of(*where) for where in step] for step in seen]
    assert unroll.observations.tolist() == [[list(where) for where in step] for step in seen]
    assert unroll.values.tolist() == values
    assert unroll.log_probabilities.tolist() == [[-value for value in step] for step in values]
    assert unroll.actions.tolist() == [[0, 0], [1, 1], [2, 2], [0, 3]]
    assert unroll.rewards.tolist() == [[1, 10], [2, 20], [3, 30], [1, 40]]
    assert environments.taken == unroll.actions.tolist()
    assert environments.seeds == [7]


def test_the_steps_of_an_unroll_are_those_of_all_environments() -> None:
    unroll = collector_of([ENDLESS], [ENDLESS], [ENDLESS], unroll_length=5).collect(act)
    assert unroll.steps == 15


def test_the_next_unroll_begins_where_the_last_one_stopped() -> None:
    collector = collector_of([ENDLESS], unroll_length=3)
    first = collector.collect(act).observations[:, 0, 2].tolist()
    second = collector.collect(act).observations[:, 0, 2].tolist()
    assert first + second == [0, 1, 2, 3, 4, 5]


def test_the_value_after_the_last_step_of_an_unroll_is_that_of_the_observation_to_come() -> None:
    collector = collector_of([ENDLESS], unroll_length=3)
    assert collector.collect(act).next_values[:, 0].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("end", "next_value", "discount"),
    [
        ("terminated", value_of(0, 1, 0), 0.0),  # its value is never used
        ("truncated", value_of(0, 0, 2), DISCOUNT),  # of the last observation, not of the next game's first
        ("both", value_of(0, 0, 2), 0.0),
    ],
)
def test_how_a_game_ends_is_kept_apart(end: str, next_value: float, discount: float) -> None:
    unroll = collector_of([game(1, 1, end=end)], [ENDLESS], unroll_length=3).collect(act)
    assert unroll.next_values[:, 0].tolist() == [value_of(0, 0, 1), next_value, value_of(0, 1, 1)]
    torch.testing.assert_close(unroll.discounts[:, 0], torch.tensor([DISCOUNT, discount, DISCOUNT]))
    assert unroll.continues[:, 0].tolist() == [1, 0, 1]
    torch.testing.assert_close(unroll.discounts[:, 1], torch.full((3,), DISCOUNT))
    assert unroll.continues[:, 1].tolist() == [1, 1, 1]


def test_games_truncated_at_different_steps_are_each_bootstrapped_from_their_own_last_observation() -> None:
    short, long = game(0, 0, end="truncated"), game(0, 0, 0, end="truncated")
    unroll = collector_of([short], [long], unroll_length=4).collect(act)
    assert unroll.next_values[:, 0].tolist() == [1, 2, 11, 12]
    assert unroll.next_values[:, 1].tolist() == [101, 102, 103, 111]


def test_a_lost_life_stops_hope_but_not_the_game() -> None:
    collector = collector_of([game(1, 1, 1, 1, lives_lost=(1,))], unroll_length=4)
    unroll = collector.collect(act)
    torch.testing.assert_close(unroll.discounts[:, 0], torch.tensor([DISCOUNT, 0.0, DISCOUNT, 0.0]))
    assert unroll.continues[:, 0].tolist() == [1, 0, 1, 0]
    assert unroll.observations[:, 0, 1:].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3]]
    assert collector.take_episodes() == [Episode(4.0, 4)]


def test_scores_are_those_of_whole_games_across_unrolls() -> None:
    collector = collector_of([game(100, -7, 0.5), game(1)], [game(1, 1, 1, 1, 1, end="truncated")], unroll_length=2)
    collector.collect(act)
    assert collector.take_episodes() == []
    collector.collect(act)
    assert collector.take_episodes() == [Episode(93.5, 3), Episode(1.0, 1)]
    collector.collect(act)
    assert collector.take_episodes() == [Episode(5.0, 5)]


def test_episodes_are_kept_until_they_are_taken_and_taken_once() -> None:
    collector = collector_of([game(1), game(2)], unroll_length=2)
    collector.collect(act)
    collector.collect(act)
    assert [episode.episode_return for episode in collector.take_episodes()] == [1, 2, 1, 2]
    assert collector.take_episodes() == []


def test_every_game_of_a_real_environment_is_told_whole() -> None:
    """CartPole pays 1 for each step, so a game's score is its length; and no step is in two games or in none."""
    environments = make_environments(Environment(id="CartPole-v1", max_episode_steps=15), count=4)
    collector = RolloutCollector(environments, unroll_length=7, discount=DISCOUNT, seed=3)
    chance = torch.Generator().manual_seed(0)

    def at_random(observations: Tensor) -> ActionChoice:
        actions = torch.randint(2, (len(observations),), generator=chance)
        return ActionChoice(actions, torch.zeros(len(actions)), torch.zeros(len(actions)))

    ends = sum(int((collector.collect(at_random).continues == 0).sum()) for _ in range(40))
    environments.close()
    games = collector.take_episodes()
    assert len(games) == ends
    assert all(game.episode_return == game.length <= 15 for game in games)
    assert 40 * 7 * 4 - 4 * 15 < sum(game.length for game in games) <= 40 * 7 * 4


def test_pixels_are_kept_as_bytes() -> None:
    environments = ScriptedEnvironments([ENDLESS])
    environments.observation_dtype = np.dtype(np.uint8)
    unroll = RolloutCollector(environments, unroll_length=2, discount=DISCOUNT, seed=1).collect(
        lambda pixels: act(pixels.to(torch.float32))
    )
    assert unroll.observations.dtype == torch.uint8


def test_each_observation_is_looked_at_once() -> None:
    """T + 1 looks, and one more for the last observations of truncated games; none for terminated ones."""
    looks: list[Tensor] = []

    def watched(observations: Tensor) -> ActionChoice:
        looks.append(observations.clone())
        return act(observations)

    collector_of([game(0, 0, end="truncated")], [game(0)], unroll_length=3).collect(watched)
    assert [len(look) for look in looks] == [2, 2, 1, 2, 2]
    assert looks[2].tolist() == [[0, 0, 2]]


@pytest.mark.parametrize(
    ("end", "worth"),
    [
        # Reward 1 at every step, for ever: 1 / (1 − γ).
        ("truncated", 1 / (1 - DISCOUNT)),
        # Five steps and no more, seen alike: the mean of 1, 1 + γ, …, 1 + γ + γ² + γ³ + γ⁴.
        ("terminated", sum(sum(DISCOUNT**k for k in range(left)) for left in range(1, 6)) / 5),
    ],
)
def test_a_state_under_a_time_limit_is_worth_what_it_is_worth(end: str, worth: float) -> None:
    environments = OneState([game(1, 1, 1, 1, 1, end=end)])
    settings = Settings(unroll_length=10, discount=DISCOUNT, entropy_weight=0, loss="mean", gradient_clip=0)
    torch.manual_seed(0)
    network = policy_value_network(Network(hidden=(4,)), (1,), pixels=False, actions=4)
    algorithm = A3C(network, settings, device=torch.device("cpu"), seed=0)
    flat = FlatNetwork(network)
    collector = RolloutCollector(environments, unroll_length=10, discount=DISCOUNT, seed=0)
    with pytest.raises(RunEnded):
        train(parameters_for(flat, learning_rate=0.5, updates=100), flat, collector, algorithm)
    assert float(algorithm.act(torch.ones(1, 1)).values) == pytest.approx(worth, rel=0.02)


class OneState(ScriptedEnvironments):
    """Always the same observation."""

    observation_shape: tuple[int, ...] = (1,)

    def _observations(self) -> NDArray[np.float32]:
        return np.ones((self.count, 1), dtype=np.float32)
