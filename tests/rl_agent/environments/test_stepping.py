"""Environments in turn, in threads and in processes are the same games; an exception costs a game and not the run."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ps_common.errors import PsRlError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.interface import Environments, Stepped
from rl_agent.environments.make import closing, make_environments

WAYS = ("turn", "threads", "processes")
MODULE = """
import gymnasium, numpy, threading
from gymnasium.spaces import Box, Dict, Discrete

class Arm(gymnasium.Env):
    observation_space = Dict({"joints": Box(-1, 1, (3,)), "camera": Box(0, 255, (8, 8, 1), numpy.uint8)})
    action_space = Discrete(3)
    def __init__(self, fails_at=(), fails_in_reset=(), render_mode=None):
        self.fails_at, self.fails_in_reset = set(fails_at), set(fails_in_reset)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        COUNTS["resets"] += 1
        if COUNTS["resets"] in self.fails_in_reset:
            raise OSError("no link")
        self.left = int(self.np_random.integers(5, 15))
        return self.shown(), {}
    def step(self, action):
        COUNTS["steps"] += 1
        THREADS.add(threading.get_ident())
        if COUNTS["steps"] in self.fails_at:
            raise RuntimeError("the simulator lost its USB link")
        self.left -= 1
        info = {"metrics": {"left": self.left}}
        return self.shown(), float(action), self.left == 0, self.left == 0 and action == 1, info
    def shown(self):
        return {"joints": self.np_random.uniform(-1, 1, 3).astype("f"),
                "camera": self.np_random.integers(0, 255, (8, 8, 1), numpy.uint8)}

COUNTS, THREADS = {"steps": 0, "resets": 0}, set()
"""


@pytest.fixture
def arm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "arm_to_step.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("arm_to_step")
    del sys.modules["arm_to_step"]


def made(count: int, *, step_in: str = "turn", most_failures: float = 0.01, **arguments: Any) -> Environments:
    settings = Environment(
        id="arm_to_step:Arm", kwargs=arguments, step_in=step_in, most_failures=most_failures  # type: ignore[arg-type]
    )  # fmt: skip
    return make_environments(settings, count=count, forgives=True)


def played(environments: Environments, steps: int) -> list[Stepped]:
    random = np.random.default_rng(0)
    environments.reset(seed=5)
    return [environments.step(random.integers(0, 3, environments.count)) for _ in range(steps)]


def test_games_are_the_same_however_they_are_stepped(arm: Any) -> None:
    by_way = []
    for way in WAYS:
        with closing(made(3, step_in=way)) as environments:
            by_way.append(played(environments, 60))
    assert any(step.terminated.any() for step in by_way[0])
    for others in by_way[1:]:
        for one, other in zip(by_way[0], others, strict=True):
            assert np.array_equal(one.observations, other.observations)
            assert np.array_equal(one.rewards, other.rewards)
            assert np.array_equal(one.terminated, other.terminated)
            assert np.array_equal(one.truncated, other.truncated)
            assert one.metrics == other.metrics
            ended = one.terminated | one.truncated
            if ended.any():
                assert one.final_observations is not None
                assert other.final_observations is not None
                assert np.array_equal(one.final_observations[ended], other.final_observations[ended])


@pytest.mark.parametrize("way", ["turn", "threads"])
def test_an_exception_of_step_truncates_a_game_that_does_not_count(
    arm: Any, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(made(1, step_in=way, fails_at=[7])) as environments:
        steps = played(environments, 40)
    failed = [t for t, step in enumerate(steps) if step.failed is not None]
    (t,) = failed
    assert steps[t].truncated[0]
    assert not steps[t].terminated[0]
    assert steps[t].rewards[0] == 0
    assert steps[t].final_observations is not None
    assert np.array_equal(steps[t].final_observations[0], steps[t - 1].observations[0])  # what was seen last
    assert "environment 0: step() raised RuntimeError: the simulator lost its USB link (arm_to_step.py" in caplog.text


def test_a_reset_that_raises_three_times_ends_the_worker(arm: Any) -> None:
    with (
        closing(made(1, fails_in_reset=[2, 3, 4])) as environments,
        pytest.raises(OSError, match="no link"),
    ):
        played(environments, 40)


@pytest.mark.parametrize(("share", "ends"), [(0.01, True), (0.9, False)])
def test_too_many_failures_end_the_worker_with_the_reason(arm: Any, share: float, ends: bool) -> None:
    with closing(made(1, fails_at=[20, 50, 80], most_failures=share)) as environments:
        if not ends:
            assert sum(step.failed is not None for step in played(environments, 100)) == 3
            return
        with pytest.raises(PsRlError, match=r"lost its USB link.*3 failures in .* games .* --most-failures 0.01"):
            played(environments, 100)
