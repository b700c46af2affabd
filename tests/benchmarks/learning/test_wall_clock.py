"""Steps/s and seconds to a score with one worker and several, by hand."""

import pytest

from benchmarks.learning.wall_clock import seconds_to, speed, table
from ps_common.errors import SettingsError

CURVE = [(2.0, 100, 0.5), (4.0, 500, 3.5), (6.0, 700, 2.5), (8.0, 1000, 4.0)]


def test_the_speed_is_that_of_the_second_half() -> None:
    assert speed(CURVE, of=1000) == 125


@pytest.mark.parametrize("curve", [[], CURVE[-1:], [CURVE[-1], CURVE[-1]]], ids=["none", "one row", "no time"])
def test_a_run_that_is_too_short_says_what_to_do(curve: list[tuple[float, int, float]]) -> None:
    with pytest.raises(SettingsError, match=r"--steps 1000: .* give more"):
        speed(curve, of=1000)


def test_the_score_is_reached_when_the_mean_has_it_first() -> None:
    assert seconds_to({"curve": CURVE}, 3.0) == 4.0
    assert seconds_to({"curve": CURVE}, 5.0) == float("inf")


def test_the_table_has_medians_and_their_ratios_to_one_worker() -> None:
    def row(workers: int, speed: int, seconds: float) -> dict[str, object]:
        return {"method": "a3c", "workers": workers, "steps_per_second": speed, "curve": [(seconds, 1, 3.0)]}

    rows = [row(1, 100, 40.0), row(1, 110, 60.0), row(1, 300, 50.0), row(2, 165, 25.0)]
    shown = table(rows, score=3.0)
    assert [list(column.cells) for column in shown.columns] == [
        ["a3c", "a3c"],
        ["1", "2"],
        ["3", "1"],
        ["110", "165"],
        ["1.00", "1.50"],
        ["50", "25"],
        ["1.00", "2.00"],
    ]
    assert list(table(rows, score=3.5).columns[-1].cells) == ["–", "–"]
