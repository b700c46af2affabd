"""How soon a preset comes to its score: the first good checkpoint, the table, and a whole measurement."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning.first_checkpoint import EVERY_EPISODES, first_good
from benchmarks.learning.seeds import ROWS, TABLE, Flags, Row, main, table
from ps_common.errors import SettingsError
from ps_common.run_folder.paths import CHECKPOINTS, EPISODES, milestone_name
from tests.rl_eval.test_cli import checkpoint


def row(seed: int, *, steps: int, reached: float | None, good: tuple[int, float, int] | None) -> Row:
    of_good = good or (None, None, None)
    return Row(seed, steps, 9.0, 0.0625, reached, *of_good, sampled=18.5, steps_per_second=2700.0, load=2.0)


class Evaluations:
    """rl-eval with a mean for each milestone, and the milestones whose 6 first and whose 30 games were played."""

    def __init__(self, means: dict[int, float], first: dict[int, float] | None = None) -> None:
        self.means = means
        self.first = first or {}  # of the 6 games; where it has none, that of the 30
        self.begun: list[int] = []
        self.played: list[int] = []

    def __call__(self, checkpoint: Path, flags: Sequence[str], *, result: Path) -> dict[str, Any]:
        assert "--greedy" in flags
        milestone = int(checkpoint.stem.rpartition("-")[2])
        if flags[flags.index("--episodes") + 1] == "6":
            self.begun.append(milestone)
            return {"mean": self.first.get(milestone, self.means[milestone]), "distinct": 6}
        assert flags[flags.index("--episodes") + 1] == "30"
        self.played.append(milestone)
        return {"mean": self.means[milestone], "distinct": 12}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with games of −21, −20, … of a thousand steps and half a minute, and a checkpoint after each fifth."""
    first = checkpoint(tmp_path / "first")
    for episode in range(EVERY_EPISODES, 50, EVERY_EPISODES):
        kept = tmp_path / CHECKPOINTS / milestone_name(episode)
        kept.parent.mkdir(exist_ok=True)
        checkpoint(kept, steps=1000 * episode, minutes=episode / 2)
    first.unlink()
    games = [
        {
            "episode": n,
            "global_steps": 1000 * n,
            "minutes": n / 2,
            "worker": "w",
            "episode_return": n - 22.0,
            "length": 9.0,
        }
        for n in range(1, 50)
    ]
    (tmp_path / EPISODES).write_text("".join(json.dumps(game) + "\n" for game in games))
    return tmp_path


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_the_first_good_checkpoint_is_the_earliest_that_reaches_the_score(run: Path, at_once: int) -> None:
    evaluations = Evaluations({40: 17.9, 45: 18.0})
    good = first_good(run, score=18, games=30, seed=1, evaluated=evaluations, at_once=at_once)
    assert good is not None
    assert (good.steps, good.minutes, good.mean, good.distinct) == (45_000, 22.5, 18.0, 12)
    assert sorted(evaluations.played) == [40, 45], "game 40 was the first training game with 18"


def test_an_earlier_good_checkpoint_hides_later_ones_even_if_they_are_bad(run: Path) -> None:
    evaluations = Evaluations({30: 7.9, 35: 8.0, 40: 3.0, 45: 9.0})
    good = first_good(run, score=8, games=30, seed=1, evaluated=evaluations, at_once=4)
    assert good is not None
    assert good.steps == 35_000


def test_a_checkpoint_that_cannot_reach_the_score_plays_its_first_games_alone(run: Path) -> None:
    """The best training game has 27: with 6 games of −18.1 and 24 of 27 the mean is below 18, with −18 it is not."""
    evaluations = Evaluations({40: 5.0, 45: 18.0}, first={40: -18.1, 45: -18.0})
    good = first_good(run, score=18, games=30, seed=1, evaluated=evaluations)
    assert good is not None
    assert good.steps == 45_000
    assert (sorted(evaluations.begun), evaluations.played) == ([40, 45], [45])


def test_there_is_no_first_checkpoint_without_a_good_one_or_a_good_game(run: Path) -> None:
    assert first_good(run, score=18, games=30, seed=1, evaluated=Evaluations({40: 1, 45: 2})) is None
    assert first_good(run, score=99, games=30, seed=1, evaluated=Evaluations({})) is None


def test_a_run_that_misses_the_score_counts_as_the_worst() -> None:
    rows = [
        row(0, steps=400_000, reached=2.5, good=(200_000, 1.0, 30)),
        row(1, steps=500_000, reached=3.5, good=(300_000, 1.5, 12)),
        row(2, steps=900_000, reached=None, good=None),
    ]
    lines = table(rows, preset="pong", score=18, flags=["--envs", "16"]).splitlines()
    assert lines[0] == "`pong --envs 16`"
    assert lines[-4].startswith("| 1 | 500,000 | 3.50 (0.062) | 300,000 | 1.50 | 12 | 18.5 |")
    assert lines[-3].startswith("| 2 | not in 900,000 | not in 9.00 (0.062) | – | – | – | 18.5 |")
    assert lines[-2].startswith("| **median** | 500,000 | 3.50 | 300,000 | 1.50 |")
    assert lines[-1].startswith("| **worst** | not | not | not | not |")


def test_seeds_need_a_score_and_a_new_folder(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^--score: the preset breakout has no score"):
        main(Flags(preset="breakout", folder=tmp_path / "new"), [])
    with pytest.raises(SettingsError, match=f"^--folder {tmp_path}: exists already"):
        main(Flags(folder=tmp_path), [])


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_preset_is_measured_from_its_start_to_its_table(tmp_path: Path) -> None:
    """Real programs. 15 is what CartPole gives to anyone after a hundred games."""
    folder = tmp_path / "measured"
    flags = Flags(folder=folder, preset="cartpole-a3c-lstm", seeds=1, score=15.0, games=2)
    assert main(flags, ["--max-steps", "20000"]) == 0
    (row,) = json.loads((folder / ROWS).read_text())
    assert row["reached_minutes"] is not None
    assert 0 < row["good_steps"] <= row["steps"]
    assert 0 < row["good_minutes"] <= row["reached_minutes"]
    assert row["start_minutes"] > 0
    assert "| **median** | " in (folder / TABLE).read_text()
