"""
Bounds on what a worker may claim: environment steps in a push, full games in a report. T, the scores and the end of a
run depend on these claims.

Between two pushes a worker makes at most one unroll of all its environments. In a run without an environment T counts
what its workers like. Finished games together last no longer than the steps that their worker's pushes have counted.
Within these bounds the server believes a worker.
"""

from collections.abc import Sequence

from ps_common.protocol.messages import Episode
from ps_common.protocol.numbers import MOST_REWARD
from ps_common.protocol.record import MOST_STEPS
from ps_common.settings.run_spec import NO_ENVIRONMENT, RunSpec
from ps_server.state.guards import Denied


def check_steps(steps: int, *, environments: int, run: RunSpec) -> None:
    """Raises Denied when a worker of so many environments cannot make so many steps between two pushes."""
    if run.environment.id == NO_ENVIRONMENT:
        if steps > MOST_STEPS:
            raise Denied("absurd_steps", f"the push counts {steps} steps, and at most {MOST_STEPS} are accepted")
        return
    unroll_length = run.algorithm.unroll_length
    most = min(environments * unroll_length, MOST_STEPS)
    if steps > most:
        raise Denied(
            "absurd_steps",
            f"the push counts {steps} steps; {environments} environments make at most {most} in an unroll of "
            f"{unroll_length}: HELLO names the number of environments, the run the length of an unroll",
        )


def check_games(episodes: Sequence[Episode], *, unplayed: int) -> None:
    """`unplayed`: steps counted by pushes that belong to no reported game. Raises Denied."""
    for episode in episodes:
        if not abs(episode.episode_return) <= MOST_REWARD * episode.length:  # NaN is not
            raise Denied(
                "absurd_return",
                f"a game of {episode.length} steps is reported with the return {episode.episode_return:g}; at most "
                f"{MOST_REWARD:g} a step is accepted, so the report does not count",
            )
    claimed = sum(episode.length for episode in episodes)
    if claimed > unplayed:
        raise Denied(
            "absurd_length",
            f"the games of the report lasted {claimed} steps, but this worker's pushes have counted "
            f"{max(0, unplayed)} that belong to no game yet, so the report does not count",
        )
