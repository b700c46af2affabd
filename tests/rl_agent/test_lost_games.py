"""--lost-game-reward replaces the last reward of a lost game, for the learner only."""

import torch
from torch import Tensor

from ps_common.settings.run_spec import Environment
from rl_agent.environments.make import make_environments
from rl_agent.rollouts import Decision, RolloutCollector, State
from tests.rl_agent.scripted_environments import Game, ScriptedActor, ScriptedEnvironments


class DoesNothing:
    def initial_state(self, count: int) -> State:
        return ()

    def act(self, observations: Tensor, state: State, starts: Tensor) -> Decision:
        return Decision(torch.zeros(len(observations), dtype=torch.int64), (), {})


SCRIPTS = [
    [Game((1.0, -1.0, -1.0), "terminated")],  # lost
    [Game((-1.0, 1.0, 1.0), "terminated")],  # won
    [Game((-1.0, 0.0, -1.0), "truncated")],  # behind, but not lost
    [Game((-1.0, 1.0, 0.0), "terminated")],  # a draw
    [Game((1.0,), "terminated"), Game((0.0, -0.5), "terminated")],  # won, then lost: scores are each game's own
]


def test_the_last_reward_of_a_lost_game_is_replaced_and_the_score_stays_true() -> None:
    collector = RolloutCollector(
        ScriptedEnvironments(*SCRIPTS), ScriptedActor(), unroll_length=6, discount=0.9, seed=0, lost_game_reward=-20
    )
    rewards = collector.collect().rewards.T.tolist()
    assert rewards == [
        [1, -1, -20, 1, -1, -20],
        [-1, 1, 1, -1, 1, 1],
        [-1, 0, -1, -1, 0, -1],
        [-1, 1, 0, -1, 1, 0],
        [1, 0, -20, 1, 0, -20],
    ]
    scores = sorted(episode.episode_return for episode in collector.take_episodes())
    assert scores == sorted([-1, -1, 1, 1, -2, -2, 0, 0, 1, -0.5, 1, -0.5])


def test_a_real_game() -> None:
    """Pong, lost 21 to 0 by doing nothing."""
    environments = make_environments(Environment(id="ALE/Pong-v5", preprocessing="atari42"), count=1)
    collector = RolloutCollector(
        environments, DoesNothing(), unroll_length=1100, discount=0.99, seed=0, lost_game_reward=-20
    )
    trajectory = collector.collect()
    environments.close()
    (episode,) = collector.take_episodes()
    assert episode.episode_return == -21
    assert sorted(trajectory.rewards[: episode.length].flatten().tolist())[:2] == [-20, -1]
