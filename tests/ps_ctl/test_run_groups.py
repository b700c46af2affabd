"""Groups of runs, their labels, and the runs below a folder."""

from pathlib import Path

import pytest

from ps_ctl.plots import group_runs, read_run, run_folders
from tests.ps_ctl.test_plots import SCORES, a_run
from tests.rows import row

RATE = "schedule.learning_rate"


def labels(*paths: Path) -> list[str]:
    return [group.label for group in group_runs([read_run(folder) for folder in run_folders(paths)])]


def test_runs_of_one_experiment_with_different_settings_are_kept_apart_and_the_difference_is_named(
    tmp_path: Path,
) -> None:
    rates = {"a": 1e-3, "b": 3e-4, "c": 1e-3}
    runs = [a_run(tmp_path / name, SCORES, experiment="rates", settings={RATE: rate}) for name, rate in rates.items()]
    assert labels(*runs) == ["rates: pong, learning-rate 0.001 (2 runs)", "rates: pong, learning-rate 0.0003 (b)"]


def test_every_setting_that_differs_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    for one, other, named in [
        ({"environment.envs": 4}, {"environment.envs": 8}, ("envs 4", "envs 8")),
        ({"environment.actions": [0, 2]}, {}, ("actions 0 2", "actions 0 2 3")),
        ({"environment.id": "ALE/Breakout-v5"}, {}, ("environment ALE/Breakout-v5", "environment ALE/Pong-v5")),
        ({"environment.lost_game_reward": -1.0}, {}, ("lost-game-reward -1", "lost-game-reward None")),
        ({"network.layer_norm": True}, {}, ("layer-norm True", "layer-norm False")),
        ({"optimizer.name": "sgd"}, {}, ("optimizer sgd", "optimizer adam")),
        ({"algorithm.name": "one_step_q"}, {}, ("algorithm one_step_q", "algorithm a3c")),
        ({"wire.gradient_codec": "int8"}, {}, ("gradient-codec int8", "gradient-codec float32")),
        ({"consistency.rule": "sync"}, {}, ("consistency sync", "consistency async")),
    ]:
        with row(one, other, named):
            tmp_path = tmp_path_factory.mktemp("row")
            runs = [a_run(tmp_path / "1", SCORES, settings=one), a_run(tmp_path / "2", SCORES, settings=other)]
            assert labels(*runs) == [f"pong, {named[0]} (1)", f"pong, {named[1]} (2)"]


# -- folders with runs below ------------------------------------------------------------------------------------------


def test_a_folder_stands_for_the_runs_below_it(tmp_path: Path) -> None:
    """Runs with nothing to draw yet are left out, and none is drawn twice."""
    a_run(tmp_path / "runs" / "exp" / "a", SCORES, preset="cartpole")
    first = a_run(tmp_path / "runs" / "b", SCORES)
    a_run(tmp_path / "runs" / "young", [None])
    assert labels(tmp_path / "runs", first) == ["pong (b)", "cartpole (a)"]
