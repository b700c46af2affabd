"""How soon a preset comes to its score: the table, and a whole measurement."""

import json
from pathlib import Path

import pytest

from benchmarks.learning.seeds import ROWS, TABLE, Flags, Row, line_of_track, main, table


def row(seed: int, *, steps: int, reached: float | None) -> Row:
    return Row(seed, steps, 9.0, 0.0625, reached, mean=12.25, sampled=18.5, steps_per_second=2700.0, load=2.0)


def test_a_run_that_misses_the_score_counts_as_the_worst() -> None:
    rows = [
        row(0, steps=400_000, reached=2.5),
        row(1, steps=500_000, reached=3.5),
        row(2, steps=900_000, reached=None),
    ]
    lines = table(rows, preset="pong", score=18, flags=["--envs", "16"]).splitlines()
    assert lines[0] == "`pong --envs 16`"
    assert lines[-4].startswith("| 1 | 500,000 | 3.50 (0.062) | 12.2 | 18.5 |")
    assert lines[-3].startswith("| 2 | not in 900,000 | not in 9.00 (0.062) | 12.2 | 18.5 |")
    assert lines[-2].startswith("| **median** | 500,000 | 3.50 |")
    assert lines[-1].startswith("| **worst** | not | not |")


def test_the_median_of_a_track_counts_a_run_that_did_not_come_to_the_mark_as_the_slowest() -> None:
    rows = [row(0, steps=1_000_000, reached=reached) for reached in (3.0, None, 2.0, 9.0, None)]
    median, each, steps, *_ = (cell.strip() for cell in line_of_track(rows, commit="abc").split("|")[1:])
    assert (median, each) == ("9.00", "3.00, not, 2.00, 9.00, not")
    assert steps.count("1,000,000") == len(rows)
    assert line_of_track([*rows[1:], rows[1]], commit="abc").startswith("| not |")


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_preset_is_measured_from_its_start_to_its_table(tmp_path: Path) -> None:
    """Real programs. 15 is what CartPole gives to anyone after a hundred games."""
    folder = tmp_path / "measured"
    flags = Flags(folder=folder, preset="cartpole-a3c-lstm", seeds=1, score=15.0, games=2)
    assert main(flags, ["--max-steps", "20000"]) == 0
    (row,) = json.loads((folder / ROWS).read_text())
    assert row["reached_minutes"] is not None
    assert row["start_minutes"] > 0
    assert "| **median** | " in (folder / TABLE).read_text()
