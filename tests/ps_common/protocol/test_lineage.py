"""Epochs are in order without a clock; a run folder holds the run id and the newest epoch."""

from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol.lineage import DRAWN, Lineage
from ps_common.protocol.names import MOST
from ps_server.storage.earlier_life import read_lineage, write_lineage

draws = st.integers(0, DRAWN - 1)
RUN = "0123456789abcdef"


@given(draws, st.lists(st.tuples(st.booleans(), draws), max_size=50))
def test_each_life_of_a_server_is_in_a_later_epoch_than_the_one_before(
    first: int, lives: list[tuple[bool, int]]
) -> None:
    lineage = Lineage.begun(RUN, secret="s", draw=first)
    assert lineage.epoch > 0, "0 is no epoch"
    for is_takeover, draw in lives:
        following = lineage.promoted(draw=draw) if is_takeover else lineage.resumed(draw=draw)
        assert lineage.epoch < following.epoch <= MOST
        assert following.run_id == RUN
        lineage = following


def test_a_server_resumed_once_a_minute_for_a_month_and_replaced_a_thousand_times_has_room_for_epochs() -> None:
    lineage = Lineage.begun(RUN, secret="s", draw=DRAWN - 1)
    for _ in range(1000):
        lineage = lineage.promoted(draw=DRAWN - 1)
    for _ in range(43_200):
        lineage = lineage.resumed(draw=DRAWN - 1)
    assert lineage.epoch < MOST


@given(draws, st.integers(0, MOST), draws)
def test_a_server_that_was_replaced_is_taken_back_in_an_epoch_above_its_successors(
    first: int, successor: int, draw: int
) -> None:
    replaced = Lineage.begun(RUN, secret="s", draw=first).replaced("other:5555", epoch=successor)
    assert replaced.epoch >= successor
    back = replaced.promoted(draw=draw)
    assert back.epoch > replaced.epoch
    assert back.replaced_by is None


# -- the file ---------------------------------------------------------------------------------------------------------


def test_a_folder_holds_the_lineage_that_was_written_last(tmp_path: Path) -> None:
    assert read_lineage(tmp_path) is None
    lineage = Lineage.begun(RUN, secret="s", draw=5)
    for _ in range(2):
        write_lineage(tmp_path, lineage)
        assert read_lineage(tmp_path) == lineage
        lineage = lineage.resumed(draw=7)
    assert [path.name for path in tmp_path.iterdir()] == ["lineage.json"]


def test_a_lineage_of_an_earlier_release_names_runs_that_it_continues(tmp_path: Path) -> None:
    lineage = Lineage.begun(RUN, secret="s", draw=5)
    content = msgspec.to_builtins(lineage) | {"continues": [RUN[::-1]]}
    (tmp_path / "lineage.json").write_bytes(msgspec.json.encode(content))
    assert read_lineage(tmp_path) == lineage
