"""
Scores that others published for the same protocol: sticky actions 0.25, the game's minimal actions, lives not ends.

They are training returns of Dopamine's agents (Castro et al. 2018), means over five seeds in the million frames up to
the given one, from https://github.com/google/dopamine/tree/master/baselines/atari/data (read in November 2026).
"""

SOURCE = "[Dopamine](https://github.com/google/dopamine/tree/master/baselines/atari/data)"
MILLIONS = (2, 5, 10, 15, 20)  # of frames
AGENTS = ("DQN", "Rainbow")
# By game: for each agent, the mean after so many million frames, in the order of MILLIONS.
SCORES: dict[str, dict[str, tuple[float, ...]]] = {
    "Pong": {"DQN": (-19.1, -15.4, -4.9, 1.5, 5.7), "Rainbow": (-20.6, -12.6, 15.2, 17.6, 18.4)},
    "Breakout": {"DQN": (3.1, 9.3, 21.5, 38.8, 52.9), "Rainbow": (4.5, 19.8, 41.9, 62.2, 67.4)},
    "Boxing": {"DQN": (-14.8, 2.6, 37.3, 71.3, 71.3), "Rainbow": (-31.2, 18.0, 68.4, 89.8, 95.1)},
    "Freeway": {"DQN": (1.3, 1.9, 8.3, 16.3, 19.6), "Rainbow": (8.2, 30.3, 32.2, 32.4, 32.6)},
    "SpaceInvaders": {"DQN": (189.9, 323.4, 663.3, 706.9, 796.5), "Rainbow": (234.2, 512.8, 743.7, 910.0, 1048.9)},
    "Seaquest": {"DQN": (167.1, 284.0, 299.6, 392.8, 465.7), "Rainbow": (181.2, 491.4, 1641.1, 1983.3, 2236.8)},
    "Qbert": {"DQN": (377.0, 893.0, 1658.4, 2224.5, 3831.2), "Rainbow": (450.6, 2511.9, 5353.9, 11721.9, 12940.0)},
    "BeamRider": {"DQN": (331.4, 363.0, 869.3, 4066.3, 3353.4), "Rainbow": (371.0, 614.3, 5982.6, 4681.1, 4861.5)},
}


def published(game: str, agent: str, frames: float) -> tuple[int, float] | None:
    """The score in the millions of frames nearest to `frames`, after them; None for a game that is not listed."""
    if game not in SCORES:
        return None
    at = min(range(len(MILLIONS)), key=lambda index: abs(MILLIONS[index] - frames / 1e6))
    return MILLIONS[at], SCORES[game][agent][at]
