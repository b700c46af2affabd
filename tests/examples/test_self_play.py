"""Self-play: the rows of the vector environment are the agents of PettingZoo's games, and the policy beats its past."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pettingzoo", reason="self-play needs: pip install pettingzoo")

from examples import self_play
from examples.self_play.agents_as_rows import AgentsAsRows
from examples.self_play.light_cycles import BOTH, LightCycles, light_cycles
from ps_common.settings.run_spec import Environment
from rl_agent.environments.custom_environment import VectorEnvironments
from tests.rows import row

ROOT = Path(__file__).parents[2]
FOLDER = Path(self_play.__file__).parent
GAMES = re.compile(r"^400 games against episodes-(\d+): (\d+)% won, (\d+)% drawn, (\d+)% lost$", re.MULTILINE)


@pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")
def test_the_game_keeps_the_rules_of_pettingzoo() -> None:
    from pettingzoo.test import parallel_api_test  # which imports games in a way that PettingZoo warns of

    parallel_api_test(LightCycles(), num_cycles=200)


def moved(game: LightCycles, **moves: int) -> tuple[list[float], bool]:
    """What both get for a step, and whether the game is over."""
    _, rewards, terminated, truncated, _ = game.step(moves)
    assert not any(truncated.values())
    assert terminated["red"] == terminated["blue"]
    return [rewards[agent] for agent in BOTH], terminated["red"]


def placed(red: tuple[int, int], blue: tuple[int, int]) -> LightCycles:
    """A game in which they stand at these cells, counted from the upper left one of the board."""
    game = LightCycles()
    game.reset(seed=0)
    game.board[4:-4, 4:-4] = 0
    game.places = np.array([red, blue]) + 4
    game.board[tuple(game.places.T)] = 1
    return game


def test_who_runs_into_something_loses() -> None:
    up, right, down, left = range(4)
    for what, red, blue, moves, rewards in [
        ("a wall", (0, 5), (9, 4), (up, up), [-1, 1]),
        ("both a wall", (0, 5), (9, 4), (up, down), [0, 0]),
        ("one cell for both", (4, 4), (4, 6), (right, left), [0, 0]),
        ("the other one", (4, 4), (4, 5), (right, up), [-1, 1]),
        ("each other", (4, 4), (4, 5), (right, left), [0, 0]),
    ]:
        with row(what):
            assert moved(placed(red, blue), red=moves[0], blue=moves[1]) == (rewards, True)
    game = placed((4, 4), (8, 8))
    assert moved(game, red=right, blue=left) == ([0, 0], False)
    assert moved(game, red=left, blue=left) == ([-1, 1], True), "its own trail"


class Noted(LightCycles):
    """It notes its seeds."""

    def __init__(self) -> None:
        self.seeds: list[int | None] = []

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.seeds.append(seed)
        return super().reset(seed)


def test_a_row_has_what_its_agent_has_in_the_game_alone() -> None:
    rows = AgentsAsRows(Noted, 8, pool="", imports=[], against=0.0)
    alone, draw = [LightCycles() for _ in range(4)], np.random.default_rng(0)
    seen = rows.reset(seed=3)[0]
    expected = [game.reset(seed=noted.seeds[-1])[0] for game, noted in zip(alone, rows.games, strict=True)]
    ended = 0
    for _ in range(60):
        assert np.array_equal(seen, [of[agent] for of in expected for agent in BOTH])
        actions = draw.integers(4, size=8)
        seen, *earned, info = rows.step(actions)
        stepped = [game.step(dict(zip(BOTH, actions[2 * k : 2 * k + 2], strict=True))) for k, game in enumerate(alone)]
        for part, given in zip([*zip(*stepped, strict=True)][:4], [info["final_obs"], *earned], strict=True):
            assert np.array_equal(given, [of[agent] for of in part for agent in BOTH])
        for k, (game, noted) in enumerate(zip(alone, rows.games, strict=True)):
            ended += not game.agents
            expected[k] = stepped[k][0] if game.agents else game.reset(seed=noted.seeds[-1])[0]
    assert ended > 20, "games end and begin anew"


@pytest.mark.parametrize("count", [1, 2, 3, 64])
def test_workers_take_any_number_of_rows_and_what_one_wins_the_other_loses(count: int) -> None:
    settings = Environment(id="examples.self_play.light_cycles:light_cycles")
    environments = VectorEnvironments(settings, count, False)
    mirrored = int(0.75 * count) // 2 * 2  # rows that play each other
    environments.reset(seed=1)
    draw, wins = np.random.default_rng(1), 0.0
    for _ in range(30):
        stepped = environments.step(draw.integers(4, size=count))
        pairs = stepped.rewards[:mirrored].reshape(-1, 2)
        assert not pairs.sum(axis=1).any()
        wins += np.abs(stepped.rewards).sum()
    assert wins > 0
    environments.close()


def trained(folder: Path, *flags: str, within_seconds: float) -> list[tuple[int, ...]]:
    """Of each earlier checkpoint: its number, and the percentages that the last weights won, drew and lost."""
    command = [sys.executable, "-m", "examples.self_play", "--folder", str(folder), *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=within_seconds)
    assert done.returncode == 0, done.stderr
    found = [tuple(map(int, line)) for line in GAMES.findall(done.stdout)]
    assert len(found) == len(done.stdout.splitlines())
    assert all(abs(sum(shares) - 100) <= 1 for _, *shares in found)
    return found


def test_it_plays_against_its_earlier_checkpoints(tmp_path: Path) -> None:
    found = trained(tmp_path / "run", "--steps", "20000", within_seconds=100)
    assert len(found) > 2
    first = min((tmp_path / "run" / "checkpoints").glob("episodes-*"))
    rows = light_cycles(64, pool=str(first))
    rows.reset(seed=0)
    rows.step(rows.action_space.sample())
    assert rows.opponent is not None
    assert 0 < rows.opponent.global_steps < 20_000


@pytest.mark.nightly
@pytest.mark.timeout(1000)
def test_it_beats_its_first_checkpoint(tmp_path: Path) -> None:
    found = trained(tmp_path / "run", within_seconds=900)
    first, *_, last = (won - lost for _, won, _, lost in found)
    assert first > 80
    assert first > last, "the later it is, the better"


def test_the_example_is_short() -> None:
    assert sum(len(file.read_text().splitlines()) for file in FOLDER.glob("*.py")) <= 150
