"""The command line of rl-cluster that `train` makes of its arguments; no process is started."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps_common.errors import SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.run_folder import followers
from ps_rl import Run, train
from rl_cluster.settings import ClusterSettings


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Sequence[str]]:
    """The flags of each run that would start."""
    flags: list[Sequence[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Run, "started", lambda folder, given, _: flags.append(given) or Run(folder))
    return flags


CARTPOLE: dict[str, Any] = {"environment": "CartPole-v1"}
SEVERAL = {"imports": "my_env", "hook": "my_env:Hook"}


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ({"run_dir": None, "resume": None, "config": None, "preset": None, "shards": None}, {}),
        ({"workers": np.int64(3), "port": np.int32(0)}, {"workers": 3, "port": 0}),
        ({"run_dir": "with space/run"}, {"run_dir": Path("with space/run")}),
        ({"max_minutes": np.float32(0.5), "hidden": np.array([8])}, {"max_minutes": 0.5, "hidden": [8]}),
        (SEVERAL, {name: [one] for name, one in SEVERAL.items()}),
        (SEVERAL, {name: (one,) for name, one in SEVERAL.items()}),
    ],
    ids=lambda one: str(one)[:50],
)
def test_equal_arguments_give_equal_runs(
    given: dict[str, Any], same: dict[str, Any], started: list[Sequence[str]]
) -> None:
    train(**CARTPOLE | given)
    train(**CARTPOLE | same)
    one, other = (parse_with_run(ClusterSettings, flags, prog="rl-cluster") for flags in started)
    assert one.overrides == other.overrides
    place = {"run_dir": None}
    assert vars(one.program) | place == vars(other.program) | place


def test_a_run_without_a_folder_gets_one_of_its_own(started: list[Sequence[str]]) -> None:
    first, second = (train("cartpole", run_dir=None) for _ in range(2))
    assert first.folder.parent == Path("runs").absolute()
    assert first.folder != second.folder


def test_a_tracker_may_be_given_alone(started: list[Sequence[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(followers.PACKAGES, "wandb", ("json",))
    train("cartpole", track="wandb")
    assert parse_with_run(ClusterSettings, started[0], prog="rl-cluster").program.track == ("wandb",)


def test_what_is_no_setting_is_named_before_anything_starts(started: list[Sequence[str]]) -> None:
    with pytest.raises(SettingsError, match=r"^train: workers is <object"):
        train("cartpole", workers=object())  # type: ignore[arg-type]
    assert not started
