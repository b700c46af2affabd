import itertools

import pytest

from ps_common.meters import mean_meters
from ps_web.history import MOST_POINTS, MOST_SENT, Table, WorkerPoint, rows_of_meters


def test_a_table_is_sent_as_columns_in_which_missing_values_are_none() -> None:
    table = Table("global_steps")
    table.add({"global_steps": 1, "loss": 0.5})
    table.add({"global_steps": 2, "entropy": 0.1})
    assert table.columns() == {"global_steps": [1, 2], "loss": [0.5, None], "entropy": [None, 0.1]}


def test_rows_of_a_resumed_run_replace_those_beyond_its_checkpoint() -> None:
    table = Table("global_steps")
    for steps in (10, 20, 30, 20, 25):
        table.add({"global_steps": steps})
    assert table.columns() == {"global_steps": [10, 20, 20, 25]}


@pytest.mark.parametrize("rows", [MOST_SENT + 1, 3 * MOST_POINTS])
def test_a_long_run_is_thinned_and_keeps_its_first_and_newest_points(rows: int) -> None:
    table = Table("global_steps")
    for steps in range(rows):
        table.add({"global_steps": steps})
    sent = table.columns()["global_steps"]
    assert len(table) <= MOST_POINTS
    assert len(sent) <= MOST_SENT
    assert sent[-1] == rows - 1
    assert sent[0] <= rows / MOST_SENT + 1
    assert max(later - earlier for earlier, later in itertools.pairwise(sent)) <= rows / 100


def test_meters_are_means_over_the_workers_that_have_them() -> None:
    assert mean_meters([{"loss": 1.0, "entropy": 2.0}, {"loss": 3.0, "entropy": None}]) == {"loss": 2.0, "entropy": 2.0}


def test_workers_of_one_moment_are_one_row_without_those_that_are_gone() -> None:
    points = [
        WorkerPoint(time=1.0, global_steps=5, minutes=0.1, meters={"loss": 1.0}),
        WorkerPoint(time=1.0, global_steps=5, minutes=0.1, meters={"loss": 3.0}),
        WorkerPoint(time=1.0, global_steps=5, minutes=0.1, meters={"loss": 9.0}, alive=False),
        WorkerPoint(time=2.0, global_steps=8, minutes=0.2, meters={}),
    ]
    assert rows_of_meters(points) == [{"global_steps": 5, "minutes": 0.1, "loss": 2.0}]
