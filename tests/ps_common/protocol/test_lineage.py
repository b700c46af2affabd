"""Epochs are in order without a clock; a run folder holds the run id and the newest epoch."""

from pathlib import Path
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.errors import SettingsError
from ps_common.protocol.lineage import DRAWN, Lineage
from ps_common.protocol.names import MOST
from ps_server.storage.earlier_life import read_lineage, write_lineage
from tests.rows import row

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


@given(draws, st.lists(draws, max_size=100), draws)
def test_a_takeover_is_above_every_resume_of_the_server_that_is_replaced(
    first: int, resumes: list[int], takeover: int
) -> None:
    primary = Lineage.begun(RUN, secret="s", draw=first)
    standby = primary.promoted(draw=takeover)
    for draw in resumes:
        primary = primary.resumed(draw=draw)
        assert primary.epoch < standby.epoch


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


def test_a_damaged_file_is_named_and_nothing_is_served(tmp_path_factory: pytest.TempPathFactory) -> None:
    for content in [b"", b"{}", b"\xff", b'{"run_id": 1, "epoch": 2}', b"[" * 1000]:
        with row(content):
            tmp_path = tmp_path_factory.mktemp("row")
            (tmp_path / "lineage.json").write_bytes(content)
            with pytest.raises(SettingsError, match=r"lineage\.json: cannot be read"):
                read_lineage(tmp_path)


def test_a_full_disk_is_named_and_the_old_file_stays(tmp_path: Path) -> None:
    write_lineage(tmp_path, lineage := Lineage.begun(RUN, secret="s", draw=5))
    with (
        mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")),
        pytest.raises(SettingsError, match=r"lineage\.json: cannot be written: No space left on device"),
    ):
        write_lineage(tmp_path, lineage.resumed(draw=1))
    assert read_lineage(tmp_path) == lineage
    assert [path.name for path in tmp_path.iterdir()] == ["lineage.json"]
