import itertools

import pytest

from ps_web.history import MOST_COLUMNS, MOST_POINTS, MOST_SENT, MetricsPoint, Table


def test_a_table_is_sent_as_columns_in_which_missing_values_are_none() -> None:
    table = Table("global_steps")
    table.add({"global_steps": 1, "loss": 0.5})
    table.add({"global_steps": 2, "entropy": 0.1})
    assert table.columns() == {"global_steps": [1, 2], "loss": [0.5, None], "entropy": [None, 0.1]}


def test_the_columns_of_a_table_are_bounded_and_those_of_the_run_come_first() -> None:
    table = Table("global_steps")
    for second in range(1000):
        point = MetricsPoint(
            time=1.0, minutes=0.5, global_steps=second, meters={f"{second}/{k}": 1.0 for k in range(32)}
        )
        kept = table.add(point.drawn())
        assert len(kept) <= MOST_COLUMNS
    assert len(table.columns()) == MOST_COLUMNS
    assert kept["global_steps"] == 999
    table.clear()
    assert table.add({"global_steps": 1, "late": 2.0}) == {"global_steps": 1, "late": 2.0}


def test_rows_of_a_resumed_run_replace_those_beyond_its_checkpoint() -> None:
    table = Table("global_steps")
    for steps in (10, 20, 30, 20, 25):
        table.add({"global_steps": steps, "loss": 0.5})
    assert table.columns()["global_steps"] == [10, 20, 20, 25]
    assert [table.went_back(), table.went_back()] == [True, False], "pages that have the table get it anew, once"


@pytest.mark.parametrize("rows", [MOST_SENT + 1, 3 * MOST_POINTS, 30 * MOST_POINTS])
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


def test_the_meters_of_a_row_are_drawn_beside_its_numbers_and_never_in_their_place() -> None:
    row = MetricsPoint(
        time=1.0, minutes=0.5, global_steps=7, steps_per_second=99.0, meters={"loss": 2.0, "minutes": 8.0}
    )
    drawn = row.drawn()
    assert (drawn["loss"], drawn["minutes"], drawn["steps_per_second"]) == (2.0, 0.5, 99.0)
    assert not {"time", "meters", "staleness_counts"} & drawn.keys()


@pytest.mark.parametrize("apart", [0, 1])
def test_of_two_curves_that_are_logged_in_turn_thinning_keeps_both(apart: int) -> None:
    table = Table("global_steps")
    for steps in range(0, 4 * MOST_POINTS, 2):
        for name, at in (("logged/a", steps), ("logged/b", steps + apart)):
            table.add({"global_steps": at, "minutes": 0.1, name: 1.0})
    columns = table.columns()
    for name in ("logged/a", "logged/b"):
        have = [at for at, value in zip(columns["global_steps"], columns[name], strict=True) if value]
        assert len(have) > MOST_SENT / 5
        assert apart or len(have) == len(columns["global_steps"]), "one row has both"
