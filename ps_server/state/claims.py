"""
What a worker may claim: environment steps in a push, full games in a report. T, scores and the end of a run rest on it.

A worker makes at most one unroll of all its environments between two pushes; and the games that it has finished lasted
no longer, together, than the steps that it has told. Within these bounds a worker is believed.
"""

from collections.abc import Sequence

from common.protocol.messages import Episode
from ps_server.state.guards import Denied

# T has to stay a number that a message can carry, however long an unroll the run asks for.
MOST_STEPS = 10**9
# A step's share of a return. The largest rewards of the Atari games are below it.
MOST_REWARD = 1e6


def check_steps(steps: int, *, environments: int, unroll_length: int) -> None:
    """Raises Denied when no worker of so many environments makes so many steps between two pushes."""
    most = min(environments * unroll_length, MOST_STEPS)
    if steps > most:
        raise Denied(
            "absurd_steps",
            f"the push counts {steps} steps; {environments} environments make at most {most} in an unroll of "
            f"{unroll_length}: HELLO says how many environments there are, the run how long an unroll is",
        )


def check_games(episodes: Sequence[Episode], *, unplayed: int) -> None:
    """`unplayed`: the steps that the worker has told and that are in no game it has reported. Raises Denied."""
    for episode in episodes:
        if not abs(episode.episode_return) <= MOST_REWARD * episode.length:  # NaN is not
            raise Denied(
                "absurd_return",
                f"a game of {episode.length} steps is said to have returned {episode.episode_return:g}; up to "
                f"{MOST_REWARD:g} a step are believed, so the report does not count",
            )
    told = sum(episode.length for episode in episodes)
    if told > unplayed:
        raise Denied(
            "absurd_length",
            f"the games of the report lasted {told} steps, and this worker's pushes have told {max(0, unplayed)} that "
            "no game was made of yet, so the report does not count",
        )
