"""The history of a run, one line after another."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from common.status import Status
from ps_server.metrics import EVERY_SECONDS, FILE_NAME, MetricsFile


def a_status(**fields: Any) -> Status:
    known: dict[str, Any] = {
        "phase": "serving",
        "epoch": 7,
        "refused": {"too_stale": 2},
        "not_modified": 0,
        "checkpoint_version": 0,
        "checkpoint_failures": 0,
        "workers_alive": 0,
        "workers": (),
    }
    return Status(**(known | fields))


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FILE_NAME).read_text().splitlines()]


def test_a_row_is_written_every_two_seconds_and_at_the_end(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path)
    for tick in range(40):
        metrics.add(a_status(global_steps=tick), now=500 + tick * 0.25)
    metrics.close(a_status(global_steps=999))
    assert EVERY_SECONDS == 2.0
    assert [row["global_steps"] for row in rows(tmp_path)] == [0, 8, 16, 24, 32, 999]


def test_a_row_is_the_whole_status_and_the_time_of_day(tmp_path: Path) -> None:
    before = time.time()
    metrics = MetricsFile(tmp_path)
    metrics.close(a_status(mean_return_100=-3.5, preset="pong"))
    (row,) = rows(tmp_path)
    assert before <= row.pop("time") <= time.time()
    assert row.keys() == set(Status.__struct_fields__)
    assert (row["mean_return_100"], row["preset"], row["refused"]) == (-3.5, "pong", {"too_stale": 2})


def test_a_row_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path)
    metrics.add(a_status(), now=0)
    assert len(rows(tmp_path)) == 1
    metrics.close(a_status())


def test_a_resumed_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for epoch in (1, 2):
        metrics = MetricsFile(tmp_path)
        metrics.close(a_status(epoch=epoch))
    assert [row["epoch"] for row in rows(tmp_path)] == [1, 2]


@pytest.mark.parametrize("left", [b'{"epoch": 1', b'{"epoch": 1}'], ids=["half a line", "a line without its end"])
def test_what_a_killed_server_left_unfinished_spoils_no_row_of_the_next(tmp_path: Path, left: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(b'{"epoch": 0}\n' + left)
    metrics = MetricsFile(tmp_path)
    metrics.close(a_status(epoch=2))
    lines = (tmp_path / FILE_NAME).read_bytes().splitlines()
    assert lines[:2] == [b'{"epoch": 0}', left]
    assert json.loads(lines[2])["epoch"] == 2


def test_a_folder_that_is_not_there_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="metrics"):
        MetricsFile(tmp_path / "nowhere")


def test_a_full_disk_is_told_once_and_does_not_end_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE_NAME).symlink_to("/dev/full")
    metrics = MetricsFile(tmp_path)
    for second in range(100):
        metrics.add(a_status(preset="x" * 500), now=second)
    metrics.close(a_status())
    (warning,) = caplog.records
    assert "metrics.jsonl: cannot be written to" in warning.getMessage()
    assert "No space left" in warning.getMessage()
