"""Speed-ups of several workers: which seeds make the figures, and the interval over pairs of runs with one seed."""

from typing import Any

from benchmarks.learning.scaling_table import measured, speed_up_in_words

STEPS = [10_000.0, 20_000.0, 30_000.0, 40_000.0]


def a_run(seed: int, scores: list[float], *, rate: float = 0.1) -> dict[str, Any]:
    return {"seed": seed, "learning_rate": rate, "steps": STEPS, "scores": scores}


def test_seeds_that_chose_the_learning_rate_make_no_figures() -> None:
    chosen = [a_run(seed, [1.0, 2.0, 3.0, 4.0]) for seed in (4, 0, 3, 1, 2)]
    lost = [a_run(seed, [9.0, 9.0, 9.0, 9.0], rate=0.2) for seed in (0, 1)]
    assert [(run["seed"], run["learning_rate"]) for run in measured(lost + chosen)] == [(2, 0.1), (3, 0.1), (4, 0.1)]


def test_an_interval_is_drawn_over_pairs_of_runs_with_one_seed() -> None:
    early, late = [4.0, 4.0, 4.0, 4.0], [0.0, 0.0, 0.0, 4.0]
    alone = [a_run(2, [0.0, 4.0, 4.0, 4.0]), a_run(3, late)]
    assert speed_up_in_words(2, alone, alone) == "2.0 (2.0 to 2.0)"
    together = [a_run(5, early), a_run(3, late), a_run(2, [0.0, 4.0, 4.0, 4.0])]
    assert speed_up_in_words(2, alone, together).endswith("(2.0 to 2.0)"), "seed 5 has no partner"
