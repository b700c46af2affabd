"""When updates from a replay memory are due: by steps alone, however they are cut into unrolls."""

import pytest

from ps_common.settings.run_spec import DqnSettings, Replay
from rl_agent.algorithms.replayed import ReplayedUpdates
from tests.rl_agent.replay.test_replay_memory import Game, unroll_of

STEPS = 96  # of each run, in all


def updates(ratio: float, environments: int, length: int) -> tuple[int, float]:
    """The updates of a run whose unrolls have this length, and the ratio that its last update reports."""
    replayed = ReplayedUpdates(Replay(learning_starts=0, batch_size=4, replay_ratio=ratio), frames=3, seed=1)
    games = [Game(seed) for seed in range(environments)]
    made, reported = 0, 0.0
    for first in range(0, STEPS, environments * length):
        unroll, _ = unroll_of(games, [[""] * length] * environments, first)
        for drawn in replayed.batches(unroll, DqnSettings(), None):
            made += 1
            reported = float(replayed.meters(drawn)["replay_ratio"])
    return made, reported


@pytest.mark.parametrize("ratio", [0.25, 1.0, 2.5])
def test_updates_are_owed_by_steps_however_they_are_cut_into_unrolls(ratio: float) -> None:
    for environments, length in [(1, 2), (1, 8), (1, 96), (4, 1), (4, 3), (4, 24)]:
        made, reported = updates(ratio, environments, length)
        assert made == STEPS * ratio
        assert reported == pytest.approx(ratio, rel=0.03)
