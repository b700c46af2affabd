"""The history of a run and of its workers, one line after another."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ps_common.protocol.status import Status, WorkerStatus
from ps_common.run_folder.paths import METRICS, WORKERS
from ps_common.run_folder.run_rows import MetricsRow, last_row
from ps_server.records.history import EVERY_SECONDS, FIRST_SECONDS, WORKERS_EVERY_SECONDS, MetricsFiles


def a_status(**fields: Any) -> Status:
    known: dict[str, Any] = {
        "phase": "serving",
        "epoch": 7,
        "refused": {"not_finite": 2},
        "not_modified": 0,
        "checkpoint_version": 0,
        "checkpoint_failures": 0,
        "workers_alive": 0,
    }
    return Status(**(known | fields))


def a_worker(name: str, **meters: float) -> WorkerStatus:
    return WorkerStatus(
        worker_id=name,
        number=0,
        host="h",
        environments=8,
        alive=True,
        silent_seconds=0.0,
        pushes=3,
        discarded=0,
        steps=480,
        staleness=0.5,
        meters=meters,
    )


def rows(folder: Path, name: str = METRICS) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def add(folder: Path, *statuses: Status) -> None:
    """Every row is due."""
    metrics = MetricsFiles(folder)
    for number, status in enumerate(statuses, start=1):
        metrics.add(status, now=WORKERS_EVERY_SECONDS * number, time_of_day=1.5)
    metrics.close(statuses[-1], time_of_day=2.5)


@pytest.mark.parametrize(
    ("minutes", "seconds"), [(0.0, FIRST_SECONDS), (4.0, 1.25), (60 * 24 * 30.0, EVERY_SECONDS)], ids=str
)
def test_rows_are_close_together_at_first_then_every_two_seconds_and_one_is_written_at_the_end(
    tmp_path: Path, minutes: float, seconds: float
) -> None:
    metrics = MetricsFiles(tmp_path)
    for tick in range(40):
        metrics.add(a_status(minutes=minutes, global_steps=tick), now=500 + tick * 0.25, time_of_day=0.0)
    metrics.close(a_status(minutes=minutes, global_steps=999), time_of_day=0.0)
    assert [row["global_steps"] for row in rows(tmp_path)] == [*range(0, 40, round(4 * seconds)), 999]


def test_the_rows_of_a_run_have_the_means_of_its_living_workers(tmp_path: Path) -> None:
    gone = msgspec.structs.replace(a_worker("c", loss=9.0), alive=False)
    workers = (a_worker("a", loss=1.0, entropy=2.0), a_worker("b", loss=3.0), gone)
    add(tmp_path, a_status(workers=workers))
    row = last_row(tmp_path / METRICS, MetricsRow)
    assert row is not None
    assert row.meters == {"loss": 2.0, "entropy": 2.0}


def test_workers_have_rows_of_their_own_once_a_minute(tmp_path: Path) -> None:
    """Two hundred of them would make each row of the run a hundred times as long."""
    metrics = MetricsFiles(tmp_path)
    workers = (a_worker("a", entropy=0.5), a_worker("b"))
    for second in range(0, 130, 2):
        metrics.add(a_status(minutes=second / 60, workers=workers), now=500.0 + second, time_of_day=second)
    metrics.close(a_status(minutes=3.0, global_steps=9, workers=workers[:1]), time_of_day=180)
    told = rows(tmp_path, WORKERS)
    assert [(row["worker_id"], row["time"]) for row in told] == [
        *(("a", 0), ("b", 0)),
        *(("a", 60), ("b", 60)),
        *(("a", 120), ("b", 120)),
        ("a", 180),
    ]
    assert (told[0]["meters"], told[-1]["minutes"], told[-1]["global_steps"]) == ({"entropy": 0.5}, 3.0, 9)


def test_the_last_row_is_found_behind_many_workers(tmp_path: Path) -> None:
    status = a_status(global_steps=7, workers=(a_worker("a", loss=1.5),))
    add(tmp_path, status)
    row = last_row(tmp_path / METRICS, MetricsRow)
    assert row is not None
    assert (row.global_steps, row.workers, row.time) == (7, (), 2.5)
    assert rows(tmp_path, WORKERS)[-1]["meters"] == {"loss": 1.5}
