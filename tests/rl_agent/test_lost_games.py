"""--lost-game-reward replaces the last reward of a lost game, for the learner only."""

from rl_agent.rollouts import RolloutCollector
from tests.rl_agent.scripted_environments import Game, ScriptedActor, ScriptedEnvironments

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
