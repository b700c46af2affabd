"""Flags that would do nothing in the run that the command names."""

import pytest

from ps_common.errors import SettingsError
from ps_common.program.flags import parse_with_run
from rl_cluster.settings import ClusterSettings
from rl_worker.settings import WorkerSettings
from tests.rows import row

ALONE = [
    ("--environment MinAtar/Breakout-v1 --frame-stack 4", "--frame-stack: .*MinAtar/Breakout-v1.* ALE game or ViZDoom"),
    ("--environment MinAtar/Breakout-v1 --sticky-actions 0.25", "--sticky-actions: .*an ALE game"),
    ("--environment CartPole-v1 --life-loss-ends-episode", "--life-loss-ends-episode: .*an ALE game"),
    ("--environment ALE/Pong-v5 --surrogate none --clip-range 0.2", "--clip-range: .*--surrogate clip"),
    ("--preset pong-a3c --final-entropy-weight -0.01", "--final-entropy-weight: .*--entropy-anneal-steps"),
    ("--preset pong --slack 2", "--slack: .*--consistency ssp"),
    ("--preset pong-a3c --imitation-samples 16", "--imitation-samples: .*--imitation-weight"),
]


def test_a_typed_flag_without_effect_is_refused() -> None:
    for command, sentence in ALONE:
        with row(command, sentence), pytest.raises(SettingsError, match=f"^{sentence}.*; remove it"):
            parse_with_run(ClusterSettings, command.split(), prog="rl-cluster")


@pytest.mark.parametrize(
    "command",
    [
        "--environment MinAtar/Breakout-v1 --frame-stack 1 --sticky-actions 0",
        "--environment ALE/Pong-v5 --sticky-actions 0.25 --frame-skip 2",
        "--preset pong --consistency ssp --slack 2",
        "--preset pong-a3c --final-entropy-weight 0 --entropy-anneal-steps 9",
    ],
)
def test_a_flag_that_does_something_or_asks_for_nothing_is_taken(command: str) -> None:
    assert parse_with_run(ClusterSettings, command.split(), prog="rl-cluster").names_a_run


def test_a_worker_that_gets_its_run_from_the_server_may_have_typed_anything() -> None:
    """Only the run decides whether it does something, and the server compares it."""
    command = "--server h:5555 --clip-range 0.2 --sticky-actions 0.25"
    assert parse_with_run(WorkerSettings, command.split(), prog="rl-worker").overrides
