"""A run from Python: the same processes as rl-cluster's, which end with the Python process."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Discrete

from ps_common.run_folder.paths import LOGGED
from ps_common.run_folder.run_rows import LoggedRow, rows_in
from ps_common.settings.run_spec import A3CSettings
from ps_common.sockets.request import status_of
from ps_rl import PsRlError, Run, SettingsError, load_policy, train
from ps_rl.updates import Update
from rl_agent.algorithms.a3c import A3C
from rl_agent.algorithms.algorithm import Loss
from tests.integration.processes import Programs, children_with, wait_for
from tests.rl_agent.custom_environments import line_with


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"learning_rat": 1.0}, "learning_rat is not a setting of this run; did you mean learning_rate"),
        ({"worker": 2}, "train: worker is not a setting of this run; did you mean workers"),
        ({"workers": -1}, "train: workers=-1: Expected `int` >= 1"),
        ({"environment": "CartPole-v99", "max_steps": 1}, "CartPole-v99"),  # as rl-cluster says it, from its process
    ],
)
def test_what_makes_no_sense_is_refused_as_by_rl_cluster(
    settings: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(PsRlError, match=sentence):
        train(**{"run_dir": tmp_path / "run", **settings})  # type: ignore[arg-type]


def test_a_run_is_started_watched_evaluated_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as a notebook does
    with train("cartpole-a3c", workers=1, seed=1, max_steps=8_000, run_dir=tmp_path / "run") as run:
        assert run.is_live
        (tmp_path / "run" / "curve.png").mkdir()  # the plot at the end fails, and not the run
        live = load_policy(run.endpoint) if wait_for(run.checkpoints) else None
        rows = list(run)
    assert rows[-1].ending == "max_steps 8000 reached"
    assert not run.is_live
    assert "\x1b" not in (run.folder / "cluster.log").read_text(), "lines, not the panel of a terminal"
    read = Run.open(tmp_path / "run")
    assert read.settings["seed"] == 1
    assert read.settings["max_steps"] == 8_000
    curve = read.curve()
    assert len(curve.steps) == len(curve.returns) > 0
    assert np.all(np.diff(curve.steps) >= 0)
    assert "<svg" in read._repr_html_()
    assert "8,0" in read._repr_html_()
    assert read.evaluate(episodes=2).episodes == 2
    with pytest.raises(PsRlError, match=r"--epsilon 0\.1: "):
        read.evaluate(episodes=2, epsilon=0.1)  # a policy has none
    with pytest.raises(PsRlError, match="its flags were refused"):
        read.evaluate(episodes="many")  # type: ignore[arg-type]
    for policy in filter(None, (live, load_policy(read.folder), load_policy(read.checkpoints()[0]))):
        assert policy.act(np.zeros(4, np.float32)).shape == ()


METRICS = """self.t == 20, False, {"metrics": {"half": self.t / 2, "bad": "x"}, "is_success": self.t == 20}"""


def test_callbacks_log_and_stop_while_an_environments_metrics_become_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "measured_line.py").write_text(line_with("self.t == 20, False, {}", METRICS))
    monkeypatch.syspath_prepend(str(tmp_path))
    meters: list[dict[str, float]] = []
    games: list[int] = []

    def callback(run: Run, update: Update) -> None:
        games.extend(game.episode for game in update.games)
        run.log("games", len(games))
        workers = status_of(run.endpoint, timeout_seconds=10).status.workers if run.endpoint else ()
        meters[:] = [worker.meters for worker in workers if "metrics/half" in worker.meters] or meters
        if len(meters) == 2 and update.meters.get("metrics/half") == 10.0:
            run.stop("both have reported")

    settings: dict[str, Any] = {"environment": "measured_line:Line", "workers": 2, "run_dir": tmp_path / "run"}
    with train(callbacks=[callback], **settings) as run:
        last = run.wait(120)
    assert last is not None
    assert last.ending == "both have reported"
    assert all((one["metrics/half"], one["metrics/is_success"]) == (10.0, 1.0) for one in meters)
    assert "metrics/bad" not in meters[0] | meters[1]
    assert games == list(range(1, last.episodes + 1))
    logged = list(rows_in(run.folder / LOGGED, LoggedRow))
    assert {row.name for row in logged} == {"logged/games"}
    assert logged[-1].value == last.episodes


def parts_of(size: int, games: Path) -> dict[str, Any]:
    """Objects that no import finds, over data of the program."""
    values = np.linspace(0, 1, size, dtype=np.float32)

    class Rooms(gymnasium.Env[Any, Any]):
        action_space = Discrete(2)

        def __init__(self, limit: int) -> None:
            self.limit = limit
            values_space = gymnasium.spaces.Box(0, 1, (size,), np.float32)
            self.observation_space = gymnasium.spaces.Dict(
                {"values": values_space, "step": gymnasium.spaces.Discrete(99)}
            )

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[Any, dict[str, Any]]:
            super().reset(seed=seed)
            self.step_number = 0
            return {"values": values, "step": 0}, {}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.step_number += 1
            seen = {"values": values, "step": self.step_number}
            return seen, float(action), self.step_number == self.limit, False, {}

    class Torso(torch.nn.Module):
        def __init__(self, observations: Any, settings: Any, *, width: int) -> None:
            super().__init__()
            self.features = width
            self.layer = torch.nn.Linear(observations.shape[0], width)

        def forward(self, observations: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.layer(observations))

    class Method(A3C):
        settings = A3CSettings  # a struct of this program could not be handed on

        def loss(self, batch: Any) -> Loss:
            assert self._settings.entropy_weight == 0.5
            return super().loss(batch)

    class Hooks:
        def on_episode(self, game: Any) -> None:
            games.write_text(str(game.score))

    return {
        "environment": Rooms,
        "environment_kwargs": {"limit": 12},
        "wrappers": [lambda inner: gymnasium.wrappers.TransformReward(inner, lambda reward: reward + 1)],
        "network": Torso,
        "network_kwargs": {"width": 6},
        "algorithm": Method,
        "entropy_weight": 0.5,
        "hooks": [Hooks],
    }


def test_objects_train_survive_the_kill_of_their_worker_and_are_evaluated(programs: Programs, tmp_path: Path) -> None:
    parts = parts_of(3, tmp_path / "games")
    with train(**parts, workers=1, run_dir=tmp_path / "run") as run:
        wait_for(lambda: run.status and run.status.workers_alive)
        assert run._child is not None
        (worker,) = children_with("rl_worker", run._child.pid)
        worker.kill()
        elsewhere = programs.start("rl-worker", "--server", run.endpoint)
        assert elsewhere.wait() != 0
        assert "__main__:Rooms: __main__ is the program that began the run" in elsewhere.output
        killed_at = run.status.global_steps if run.status else 0
        wait_for(lambda: run.status and run.status.global_steps > killed_at and (tmp_path / "games").exists())
        wait_for(run.checkpoints)
    assert "worker-0" in (run.folder / "cluster.log").read_text()
    result = run.evaluate(episodes=2)
    assert 12 <= min(result.scores) <= max(result.scores) <= 24
    assert run.settings["environment_kwargs"] == {"limit": 12}
    assert load_policy(run.folder).observations.shape is not None
    assert not any(b"cloudpickle" in file.read_bytes() for file in run.folder.rglob("*") if file.is_file())


LAST_LINE = """
import sys
from ps_rl import train

run = train("cartpole-a3c", workers=1, seed=1, max_steps=int(sys.argv[2]), until_return=None, run_dir=sys.argv[1])
"""


@pytest.mark.parametrize(
    ("more", "status", "is_waited_for"),
    [
        ("", 0, True),
        ("raise ValueError", 1, False),
    ],
)
def test_a_script_waits_for_a_run_that_it_has_started_and_not_looked_at(
    more: str, status: int, is_waited_for: bool, tmp_path: Path
) -> None:
    steps = 5_000 if is_waited_for else 10**8
    command = [sys.executable, "-c", f"{LAST_LINE}\n{more}", str(tmp_path / "run"), str(steps)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    run = Run.open(tmp_path / "run")
    assert (ran.returncode, run.is_live) == (status, False), ran.stderr
    assert run.status is not None
    assert (run.status.ending == f"max_steps {steps} reached") is is_waited_for
    assert ("waits for its run; Ctrl-C stops it" in ran.stderr) is is_waited_for


def test_a_live_run_is_set_paused_and_saved_from_python(tmp_path: Path) -> None:
    with train("cartpole-a3c", workers=1, until_return=None, run_dir=tmp_path / "run") as run:
        wait_for(lambda: run.status and run.status.global_steps)
        run.set(learning_rate=1e-5, until_return=499.0)
        with pytest.raises(SettingsError, match="gamma: cannot be adjusted"):
            run.set(gamma=0.5)
        run.pause()
        assert status_of(run.endpoint, timeout_seconds=10).status.paused
        saved = run.checkpoint()
        assert saved in [path.absolute() for path in run.checkpoints()]
        other = Run.open(run.folder)
        other.resume()
        assert not status_of(run.endpoint, timeout_seconds=10).status.paused
        other.stop("seen enough")
        run.wait(60)
    assert run.status is not None
    assert run.status.ending == "seen enough"
    with pytest.raises(PsRlError, match="no server serves this run now"):
        run.pause()
