"""`train(workers=0)`: a whole run in the thread of the test, where a debugger stops and errors arrive."""

import os
import re
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import psutil
import pytest
import torch

from ps_common.errors import PsRlError, RequestRefused, SettingsError
from ps_common.run_folder.run_rows import read_episodes
from ps_rl import Run, load_policy, train
from ps_rl.updates import Update

LINE: dict[str, Any] = {"environment": f"{__name__}:Line", "algorithm": "a3c", "envs": 2, "seed": 1, "workers": 0}


class Line(gymnasium.Env[Any, Any]):
    """Twenty steps; `each_step` is called in each of them."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    each_step: ClassVar[Any] = None
    closed: ClassVar[int] = 0

    def __init__(self, render_mode: str | None = None) -> None:
        self.t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if Line.each_step is not None:
            Line.each_step()
        self.t += 1
        info = {"metrics": {"half": self.t / 2}} if self.t == 20 else {}
        return np.array([self.t / 20, 0], np.float32), float(action), self.t == 20, False, info

    def close(self) -> None:
        Line.closed += 1


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "each_step", None)
    monkeypatch.setattr(Line, "closed", 0)


def test_a_run_in_one_process_learns_is_recorded_and_can_be_evaluated_and_resumed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seen: list[Update] = []
    threads = torch.get_num_threads()
    run = train(
        "cartpole-a3c",
        workers=0,
        seed=1,
        max_steps=6000,
        run_dir=tmp_path / "run",
        callbacks=[lambda _, update: seen.append(update)],
    )
    assert not run.is_live
    assert torch.get_num_threads() == threads
    read = Run.open(tmp_path / "run")
    assert read.status is not None
    assert read.status.ending == "max_steps 6000 reached"
    assert read.settings["seed"] == 1
    assert [update.time for update in seen] == [update.time for update in read]
    games = [game.episode for update in seen for game in update.games]
    assert games == [game.episode for game in read_episodes(run.folder)] == list(range(1, read.status.episodes + 1))
    returns = [game.episode_return for game in read_episodes(run.folder)]
    assert sum(returns[-50:]) > 1.5 * sum(returns[:50]), "it has learned something"
    assert len(read.curve().steps) > 0
    assert f"{read.status.global_steps:012d}-" in read.checkpoints()[0].name
    result = read.evaluate(episodes=2)
    assert result.episodes == 2
    assert read.episodes() == read_episodes(run.folder)
    last, oldest = read.policy("last"), read.policy(read.checkpoints()[-1])
    assert last.global_steps == read.status.global_steps > oldest.global_steps
    assert read.policy().global_steps <= last.global_steps
    assert read.watch() == read.status
    assert "target" in capfd.readouterr().out, "the lines of rl-cluster"
    for shown in (run, read.curve(), read.status, seen[0], result, last):
        assert re.fullmatch(rf"<{type(shown).__name__} .{{10,200}}>|<Update: .+>|<MetricsRow: .+>", repr(shown)), shown
    again: list[Update] = []
    resumed = train(
        workers=0,
        resume=tmp_path / "run",
        max_steps=7000,
        callbacks=[lambda _, update: again.append(update)],
    )
    assert resumed.status is not None
    assert resumed.status.ending == "max_steps 7000 reached"
    assert resumed.status.global_steps >= 7000
    assert again
    assert [update.time for update in again] == [new.time for new in resumed if new.time > seen[-1].time]


def test_a_policy_leaves_its_run_as_a_folder(tmp_path: Path) -> None:
    run = train(**LINE, max_steps=200, run_dir=tmp_path / "run")
    policy = load_policy(run.export(tmp_path / "policy", episodes=2))
    assert policy.global_steps == run.policy().global_steps
    with pytest.raises(PsRlError, match=r"--export .*policy: must be a new folder"):
        run.export(tmp_path / "policy")
    with pytest.raises(SettingsError, match=r"no-such"):
        Run.open(tmp_path / "no-such")
    with pytest.raises(PsRlError, match=f"--import {__name__}"):
        Run.open(run.folder).export(tmp_path / "other")


def test_a_run_starts_from_the_weights_of_another(tmp_path: Path) -> None:
    """Its first games are better than those that the other one began with; another network is refused by a tensor."""
    kept: dict[str, Any] = {"workers": 0, "seed": 1}
    before = train("cartpole-a3c", **kept, max_steps=12_000, run_dir=tmp_path / "before")
    run = train("cartpole-a3c", **kept, start_from=before.folder, max_steps=3000, run_dir=tmp_path / "run")
    old, new = ([game.episode_return for game in read_episodes(one.folder)][:20] for one in (before, run))
    assert sum(new) > 2 * sum(old)
    assert run.settings["start_from"] == str(before.folder)
    assert f"starts from the weights of {before.folder}/" in (run.folder / "events.jsonl").read_text()
    like = {"separate": True, "normalization": "none", "run_dir": tmp_path / "other"}
    with pytest.raises(RequestRefused, match=r"--start-from .*: tensor 'branch.torso.1.weight' \[64, 2\] of this run"):
        train(**LINE, **like, start_from=before.folder)


def test_the_environment_is_stepped_in_the_callers_thread_where_a_debugger_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[tuple[int, threading.Thread, str]] = []

    def debugger(*_: Any) -> None:
        frame = sys._getframe(2)  # of the line with breakpoint()
        stopped.append((os.getpid(), threading.current_thread(), frame.f_code.co_name))

    monkeypatch.setattr(sys, "breakpointhook", debugger)
    monkeypatch.setattr(Line, "each_step", lambda: breakpoint())  # noqa: T100
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a socket"))
    children = psutil.Process().children()
    train(**LINE, max_steps=200, run_dir=tmp_path / "run")
    assert {(pid, thread) for pid, thread, _ in stopped} == {(os.getpid(), threading.current_thread())}
    assert len(stopped) >= 200
    assert stopped[0][2] == "step"
    assert psutil.Process().children() == children
    assert Line.closed


def test_an_error_of_the_environment_is_raised_with_its_own_traceback_and_the_run_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = iter(range(400))  # of training: before it, random play measures the observations

    def fails() -> None:
        if any((tmp_path / "run").glob("checkpoints/*.safetensors")) and next(steps, None) is None:
            raise ZeroDivisionError("of the user")

    monkeypatch.setattr(Line, "each_step", fails)
    with pytest.raises(ZeroDivisionError, match="of the user") as raised:
        train(**LINE, run_dir=tmp_path / "run")
    frames = traceback.extract_tb(raised.value.__traceback__)
    assert [frame.name for frame in frames[-2:]] == ["step", "fails"]
    assert f"Run.open('{tmp_path / 'run'}')" in raised.value.__notes__[-1]
    run = Run.open(tmp_path / "run")
    assert not run.is_live
    assert run.status is not None
    assert "ZeroDivisionError: of the user" in run.status.ending
    assert run.status.failed
    assert len(run.checkpoints()) == 2
    assert Line.closed == 2
    monkeypatch.setattr(Line, "each_step", None)
    resumed = train(workers=0, resume=tmp_path / "run", imports=__name__, max_steps=3000)
    assert resumed.status is not None
    assert resumed.status.ending == "max_steps 3000 reached"


def test_a_run_in_one_process_is_set_paused_and_saved(tmp_path: Path) -> None:
    """Each is done by the time that the call returns; a paused run trains on when it is resumed."""
    done: list[Any] = []

    def steers(run: Run, update: Update) -> None:
        if update.global_steps and not done:
            run.set(learning_rate=1e-5)
            with pytest.raises(SettingsError, match="gamma"):
                run.set(gamma=0.5)
            run.pause()
            done.append(run.checkpoint())
            run.resume()
            run.set(max_steps=update.global_steps + 3000)  # an update may be some steps old

    run = train(**LINE, callbacks=[steers], run_dir=tmp_path / "run")
    assert len(done) == 1
    assert run.status is not None
    assert run.status.ending.startswith("max_steps")
    assert done[0].name.startswith("checkpoint-")


def test_callbacks_are_called_in_the_loop_and_log_stop_and_raise(tmp_path: Path) -> None:
    threads = set()

    def stops(run: Run, update: Update) -> None:
        threads.add(threading.current_thread())
        assert run.is_live or update.ending
        if "metrics/half" in update.meters:
            run.log("half", update.meters["metrics/half"])
            run.stop("seen enough")

    run = train(**LINE, callbacks=[stops], run_dir=tmp_path / "run")
    assert threads == {threading.current_thread()}
    assert run.status is not None
    assert run.status.ending == "seen enough"
    assert '"name":"logged/half","value":10.0' in (run.folder / "logged.jsonl").read_text()

    def raises(run: Run, update: Update) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        train(**LINE, callbacks=[raises], run_dir=tmp_path / "other")


def test_objects_need_no_import_path_and_what_cannot_be_pickled_trains_here(tmp_path: Path) -> None:
    lock = threading.Lock()

    class Limited(Line):
        def __init__(self, limit: int) -> None:
            super().__init__()
            self.limit = limit

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            with lock:
                seen, reward, _, *rest = super().step(action)
            return seen, reward, self.t == self.limit, *rest

    parts: dict[str, Any] = {"environment": Limited, "environment_kwargs": {"limit": 5}}
    run = train(**LINE | parts, max_steps=200, run_dir=tmp_path / "run")
    assert {game.length for game in read_episodes(run.folder)} == {5}
    with pytest.raises(SettingsError, match=r"^Limited: cannot be handed"):
        run.evaluate(episodes=1)
