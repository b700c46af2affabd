"""The process that calls `on_checkpoint`, at its first start and after it has died; here it is a function."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ps_common.run_folder.paths import CHECKPOINTS, checkpoint_name
from rl_cluster.hooks import cli as checkpoints
from rl_cluster.hooks.cli import checkpoint_hooks, follow

HOOKS = """
seen, deadly = [], []
class Keeps:
    def on_checkpoint(self, path):
        seen.append(int(path.stem.split("-")[1]))
        if seen[-1] in deadly:
            raise KeyboardInterrupt
"""


class Asked:
    """A signal has come: one look at the folder is the last."""

    def is_set(self) -> bool:
        return True


@pytest.fixture
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the hooks: `seen` are the numbers of the checkpoints that they were called with."""
    (tmp_path / "own_hooks.py").write_text(HOOKS)
    monkeypatch.setattr(checkpoints, "StopSignal", Asked)
    monkeypatch.setattr(checkpoints, "log_as", lambda _: None)
    monkeypatch.setattr(checkpoints, "Child", lambda _program, arguments, _log: follow(arguments))
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own_hooks")
    del sys.modules["own_hooks"]


def appears(run: Path, number: int) -> None:
    (run / CHECKPOINTS).mkdir(exist_ok=True)
    (run / CHECKPOINTS / checkpoint_name(number, 1)).touch()


@pytest.mark.parametrize("before", [[], [7, 8]])
def test_a_process_that_is_started_again_goes_on_where_it_ended(hooks: Any, tmp_path: Path, before: list[int]) -> None:
    """Checkpoints of before the run are not handed over; those that appear before a start, or between two, are."""
    for number in before:
        appears(tmp_path, number)
    (follower,) = checkpoint_hooks(tmp_path, ["own_hooks:Keeps"])
    for number, seen in ((9, [9]), (10, [9, 10]), (11, [9, 10, 11])):
        appears(tmp_path, number)
        follower.start()
        assert hooks.seen == seen
    follower.start()
    assert hooks.seen == [9, 10, 11]


def test_a_checkpoint_that_ends_the_process_is_handed_over_once(hooks: Any, tmp_path: Path) -> None:
    (follower,) = checkpoint_hooks(tmp_path, ["own_hooks:Keeps"])
    hooks.deadly.append(2)
    for number in (1, 2, 3):
        appears(tmp_path, number)
    with pytest.raises(KeyboardInterrupt):
        follower.start()
    follower.start()
    assert hooks.seen == [1, 2, 3]
