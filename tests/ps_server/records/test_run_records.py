"""The records of a run in its folder."""

import errno
import re
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ps_common.protocol.messages import Episode
from ps_common.run_folder.paths import METRICS
from ps_common.run_folder.run_rows import MetricsRow, last_row, read_episodes
from ps_common.settings.run_spec import RunSpec
from ps_server.records import bounded_file, run_records
from ps_server.records.run_records import RunRecords
from tests.ps_server.records.test_episodes import a_report
from tests.ps_server.records.test_event_file import events_in, loaded, scalars_of
from tests.ps_server.records.test_metrics import a_status

PATIENCE_SECONDS = 20.0
PERF = RunSpec(preset="pong")


def test_a_run_leaves_its_settings_its_episodes_and_its_summaries(tmp_path: Path) -> None:
    records = RunRecords(tmp_path, lambda: PERF, endpoint="host:5555")
    assert (tmp_path / "endpoint").read_text() == "host:5555\n"
    records.add(a_report(minutes=0.5, episodes=(Episode(3.0, 10),), meters={"entropy": 0.5}))
    records.add(a_report(minutes=0.6, global_steps=900, meters={"entropy": 1.5}))
    records.close(a_status())
    assert tomllib.loads((tmp_path / "run.toml").read_text())["preset"] == "pong"
    assert [row.episode_return for row in read_episodes(tmp_path)] == [3.0]
    event = events_in(tmp_path)[2]
    assert event.step == 900
    assert scalars_of(event) == {"Perf/Reward": 3.0, "Perf/Length": 10.0, "Losses/Entropy": 1.0}
    assert not (tmp_path / "endpoint").exists()


def test_a_run_has_an_event_file_unless_its_settings_forbid_it(tmp_path: Path) -> None:
    spec = RunSpec()
    records = RunRecords(tmp_path, lambda: spec, endpoint="host:5555")
    records.add(a_report(episodes=(Episode(3.0, 10),)))
    records.close(a_status())
    tags = loaded(tmp_path).Tags()
    assert tags["scalars"] == ["Perf/Reward", "Perf/Length"]


def test_a_resumed_run_has_the_points_up_to_its_checkpoint_and_those_that_follow(tmp_path: Path) -> None:
    """Its former life went on to T 10,000; it goes on from T 5,500, and has no point for a while."""
    for begun, ended in ((0, 10_000), (5_500, 5_500), (5_500, 12_000)):
        records = RunRecords(tmp_path, lambda: PERF, endpoint="host:5555")
        records.tick(a_status(global_steps=begun))
        for T in range(begun + 500, ended + 1, 500):
            records.add(a_report(updates=T, global_steps=T, minutes=T / 100, meters={"entropy": float(T)}))
        records.close(a_status(global_steps=ended))
        points = {point.step: point.value for point in loaded(tmp_path).Scalars("Losses/Entropy")}
        assert list(points) == sorted(points)
        assert max(points) == ended
        assert min(points) == 1000


def test_settings_are_written_as_soon_as_a_worker_has_decided_them(tmp_path: Path) -> None:
    spec: RunSpec | None = None
    records = RunRecords(tmp_path, lambda: spec, endpoint="host:5555")
    records.tick(a_status())
    eventually((tmp_path / "metrics.jsonl").read_text)
    assert not (tmp_path / "run.toml").exists()
    spec = PERF
    records.tick(a_status())
    eventually((tmp_path / "run.toml").exists)
    records.close(a_status())
    assert (tmp_path / "run.toml").read_text() == PERF.to_toml()


@pytest.mark.parametrize("what", ["write_whole", "Summaries"])
def test_what_a_full_disk_has_refused_once_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    is_refused = threading.Event()

    def full(*_: Any, **__: Any) -> None:
        is_refused.set()
        raise OSError(errno.ENOSPC, "No space left on device")

    records = RunRecords(tmp_path, lambda: PERF, endpoint="host:5555")
    with monkeypatch.context() as disk:
        disk.setattr(run_records, what, full)
        records.tick(a_status())
        assert is_refused.wait(PATIENCE_SECONDS)
    while not (tmp_path / "tensorboard").exists():
        records.tick(a_status())
        threading.Event().wait(0.01)
    records.add(a_report(updates=10, episodes=(Episode(3.0, 10),)))
    records.close(a_status())
    assert (tmp_path / "run.toml").read_text() == PERF.to_toml()
    assert loaded(tmp_path).Tags()["scalars"] == ["Perf/Reward", "Perf/Length"]


class FrozenDisk:
    """Writes block until the disk goes on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.goes_on = threading.Event()
        add = bounded_file.AppendedFile.add

        def frozen(file: bounded_file.AppendedFile, data: bytes) -> int:
            assert self.goes_on.wait(PATIENCE_SECONDS)
            return add(file, data)

        monkeypatch.setattr(bounded_file.AppendedFile, "add", frozen)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FrozenDisk]:
    frozen = FrozenDisk(monkeypatch)
    yield frozen
    frozen.goes_on.set()


def test_serving_does_not_wait_for_a_frozen_disk_and_records_are_dropped_and_counted(
    tmp_path: Path, disk: FrozenDisk, caplog: pytest.LogCaptureFixture
) -> None:
    """The serving thread once wrote these files: with a frozen disk it replied to nobody."""
    records = RunRecords(tmp_path, lambda: PERF, endpoint="host:5555", most_waiting=100)
    for number in range(1, 1001):
        records.tick(a_status(global_steps=number))
        records.add(a_report(first_episode=number, episodes=(Episode(3.0, 10),)))
    told = [int(re.findall(r": (\d+) were dropped", record.getMessage())[0]) for record in caplog.records]
    assert told[0] == 1
    assert len(told) < 15, "told with each doubling, not with each row"
    assert told[-1] > 1000
    assert read_episodes(tmp_path) == []
    disk.goes_on.set()
    assert records.close(a_status(global_steps=2000))
    assert 1 <= len(read_episodes(tmp_path)) < 100
    row = last_row(tmp_path / METRICS, MetricsRow)
    assert row is not None
    assert row.global_steps == 2000


def eventually(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
