"""One recipe on many games: what a row is made of, what is published, and a whole measurement."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.learning import game_curves
from benchmarks.learning.games import CURVES, GAMES, ROWS, TABLE, Flags, Row, Score, main, row_of, table
from benchmarks.learning.programs import Trained
from benchmarks.learning.published import AGENTS, published
from ps_common.run_folder.paths import METRICS
from ps_common.settings.run_files import load_preset
from rl_eval import scores
from rl_eval.games import Baseline
from tests.rows import row


def trained(steps: int, mean: float | None) -> Trained:
    return Trained(Path("run"), steps, 30.0, 0.1, None, 1500.0, mean)


def result(mean: float) -> dict[str, Any]:
    return {"mean": mean, "low": mean - 1, "high": mean + 1}


def baselines(**scores: float) -> list[Baseline]:
    return [
        Baseline(name=name.replace("_", " "), mean=score, low=None, high=None, episodes=30, distinct=1)
        for name, score in scores.items()
    ]


BOXING = row_of(
    "Boxing",
    [(trained(2_500_000, 60.0), result(65.0))],
    baselines(random_play=0.7, UP=-20.0, FIRE=2.5, NOOP=-24.0),
)


def test_a_game_stands_beside_random_play_the_best_constant_action_and_published_scores() -> None:
    (line,) = table([BOXING], minutes=30).splitlines()[4:]
    assert line.startswith("| Boxing | 10.0 | 60.0 | 65.0 (64.0 to 66.0) | 0.7 | 2.5 (FIRE) | 37.3 (25.4 to 49.2) |")
    assert line.endswith("| 68.4 (64.9 to 72.7) |")


def test_random_play_is_no_constant_action_even_if_it_is_better() -> None:
    row = row_of("Pong", [(trained(1, None), result(0.0))], baselines(random_play=5.0, UP=1.0))
    assert (row.random, row.constant) == (5.0, ("UP", 1.0))


def test_of_several_seeds_the_table_has_the_median_and_all() -> None:
    scores = [Score(5.0, 4.0, 6.0), Score(7.0, None, None), Score(6.0, 0, 9)]
    row = Row("Pong", [10, 20, 30], [1.0, None, 3.0], scores, random=-20.7, constant=("UP", -21.0))
    assert "| 2.0 | 6.0 (5.0, 7.0, 6.0) |" in table([row], minutes=1)


def test_a_score_without_an_interval_and_a_run_without_a_hundred_games_are_told_as_such() -> None:
    row = Row("Tennis", [4_000_000], [None], [Score(0.0, None, None)], random=-23.0, constant=("UP", -24.0))
    assert "| Tennis | 4.0 | no 100 games | 0.0 | -23.0 | -24.0 (UP) | – | – | – |" in table([row], minutes=1)


def test_a_published_score_is_that_of_the_million_in_which_a_run_ended() -> None:
    for frames, million in [(1, 1), (1e6, 1), (1e6 + 1, 2), (10e6, 10), (11.3e6, 12), (50e6, 50)]:
        with row(frames, million):
            found = published("Boxing", "Rainbow", frames)
            assert found is not None
            assert found.million == million


def test_beyond_the_published_frames_there_is_no_score() -> None:
    assert published("Boxing", "Rainbow", 50e6 + 1) is None
    assert published("Tennis", "Rainbow", 1e6) is None


def test_every_game_has_published_scores_and_the_recipe_their_protocol() -> None:
    for game in GAMES:
        for agent in AGENTS:
            found = published(game, agent, 12e6)
            assert found is not None
            assert found.low <= found.mean <= found.high
    environment = load_preset("atari").environment
    assert (environment.sticky_actions, environment.actions, environment.life_loss_ends_episode) == (0.25, (), False)


def test_the_picture_has_the_published_scores_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(game_curves, "published", lambda game, agent, frames: asked.append(frames))
    (tmp_path / "Boxing").mkdir()
    (tmp_path / "Boxing" / METRICS).touch()
    row = Row("Boxing", [10, 20, 60], [], [], random=0.7, constant=("FIRE", 2.5))
    game_curves.draw(tmp_path, [row], tmp_path / CURVES)
    assert asked == [20] * len(AGENTS), "of several seeds the median"


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_games_are_measured_from_their_start_to_table_and_curves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scores, "RANDOM_GAMES", 2)
    monkeypatch.setattr(scores, "HELD_GAMES", 2)
    folder = tmp_path / "games"
    flags = Flags(games=("Pong", "Freeway"), minutes=0.3, episodes=2, folder=folder)
    assert main(flags) == 0
    rows = json.loads((folder / ROWS).read_text())
    assert [row["game"] for row in rows] == ["Pong", "Freeway"]
    assert all(row["frames"][0] > 0 and row["constant"][0] for row in rows)
    assert len((folder / TABLE).read_text().splitlines()) == 6
    assert (folder / CURVES).stat().st_size > 10_000
