"""ViZDoom's *basic*: one monster, three buttons, 300 tics."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ps_common.settings.run_spec import Environment
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import make_environments

pytest.importorskip("vizdoom", reason="needs the extra doom")
# The wrapper numbers its buttons' combinations: none, attack, right, left.
BASIC = Environment(id="VizdoomBasic-v1", actions=(3, 2, 1), frame_stack=2)
LEFT, RIGHT, ATTACK = 0, 1, 2


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def basic() -> Iterator[Environments]:
    environments = make_environments(BASIC, count=2)
    yield environments
    environments.close()


def test_it_is_played_where_nothing_can_be_written_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's file system can be read-only; root may write into any other folder, but into none of /proc."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.chdir("/proc/self" if sys.platform == "linux" else "/")
    before = os.getcwd()
    environments = make_environments(BASIC, count=2)
    try:
        assert os.getcwd() == before
        environments.reset(0)
        for _ in range(80):
            environments.step(np.array([LEFT, RIGHT]))
        environments.reset(1)
    finally:
        environments.close()
    assert not list(temporary.iterdir())


def test_a_time_out_truncates_with_the_real_last_frame(basic: Environments) -> None:
    """Against a wall: frames hardly change, so the last one is like those before it, and not black."""
    seen = basic.reset(0)
    for step in range(75):
        previous, stepped = seen, basic.step(np.array([LEFT, LEFT]))
        seen = stepped.observations
        assert not stepped.terminated.any()
        assert stepped.truncated.all() == (step == 74)
        assert (stepped.rewards == -4).all(), "true: one for each tic"
    final = stepped.final_observations
    assert final is not None
    np.testing.assert_array_equal(final[:, 0], previous[:, 1])
    assert np.abs(final[:, 1].astype(float) - previous[:, 1]).mean() < 5
    assert (stepped.observations[:, 0] == stepped.observations[:, 1]).all(), "a new game, its first frame repeated"
    assert (final != stepped.observations).any()


def test_a_killed_monster_terminates_and_is_worth_its_true_reward() -> None:
    """Walking and shooting, some shot hits. The reward may come a tic before the game ends, so in the step before."""
    environments = make_environments(BASIC, count=1)
    environments.reset(1)
    best, killed = -np.inf, 0
    for step in range(300):
        stepped = environments.step(np.array([ATTACK if step % 2 else LEFT if step % 40 < 20 else RIGHT]))
        best = max(best, float(stepped.rewards[0]))
        if stepped.terminated.any() or stepped.truncated.any():
            assert stepped.terminated[0] == (best > 90)
            assert stepped.terminated[0] != stepped.truncated[0]
            assert stepped.observations.std() > 5, "the next game has begun"
            killed += int(stepped.terminated[0])
            best = -np.inf
    environments.close()
    assert killed


def test_the_same_seed_plays_the_same_games_and_environment_k_has_the_seed_plus_k() -> None:
    def seen(count: int, seed: int) -> np.ndarray:  # type: ignore[type-arg]
        environments = make_environments(BASIC, count=count)
        frames = [environments.reset(seed)]
        frames += [environments.step(np.full(count, step % 3)).observations for step in range(90)]
        environments.close()
        return np.array(frames)

    both = seen(2, 4)
    np.testing.assert_array_equal(both[:, 0], seen(1, 4)[:, 0])
    np.testing.assert_array_equal(both[:, 1], seen(1, 5)[:, 0])
    assert (both[:, 0] != both[:, 1]).any()
