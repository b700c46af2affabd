"""What a run leaves in its folder, by what it is told."""

import tomllib
from pathlib import Path

import pytest

from common.messages import Episode
from common.run_spec import Records, RunSpec
from ps_server.episodes import read_episodes
from ps_server.run_records import RunRecords
from tests.ps_server.test_episodes import a_report
from tests.ps_server.test_metrics import a_status
from tests.ps_server.test_summaries import events_in, values

PERF = RunSpec(preset="pong", records=Records(summaries="perf", summary_every_updates=10))


def test_a_run_leaves_its_settings_its_episodes_and_its_summaries(tmp_path: Path) -> None:
    records = RunRecords(tmp_path, lambda: PERF, endpoint="host:5555")
    assert (tmp_path / "endpoint").read_text() == "host:5555\n"
    records.reported(a_report(updates=0, episodes=(Episode(3.0, 10),), meters={"entropy": 0.5}))
    records.reported(a_report(updates=10, global_steps=900, meters={"entropy": 1.5}))
    records.close(a_status())
    assert tomllib.loads((tmp_path / "run.toml").read_text())["preset"] == "pong"
    assert [row.episode_return for row in read_episodes(tmp_path)] == [3.0]
    event = events_in(tmp_path)[-1]
    assert event.step == 900
    assert values(event) == {"Perf/Reward": 3.0, "Perf/Length": 10.0, "Losses/Entropy": 1.0}
    assert not (tmp_path / "endpoint").exists()


def test_a_run_that_ends_before_a_point_is_due_has_one(tmp_path: Path) -> None:
    records = RunRecords(tmp_path, lambda: PERF, endpoint="host:5555")
    records.reported(a_report(updates=9, global_steps=80, meters={"entropy": 0.5}))
    records.close(a_status())
    event = events_in(tmp_path)[-1]
    assert (event.step, values(event)) == (80, {"Losses/Entropy": 0.5})


def test_a_run_that_wants_no_summaries_has_none(tmp_path: Path) -> None:
    records = RunRecords(tmp_path, RunSpec, endpoint="host:5555")
    records.reported(a_report())
    records.close(a_status())
    assert not (tmp_path / "tensorboard").exists()


def test_settings_are_written_as_soon_as_a_worker_has_brought_them(tmp_path: Path) -> None:
    spec: RunSpec | None = None
    records = RunRecords(tmp_path, lambda: spec, endpoint="host:5555")
    records.tick(a_status())
    assert not (tmp_path / "run.toml").exists()
    spec = PERF
    records.tick(a_status())
    assert (tmp_path / "run.toml").read_text() == PERF.to_toml()
    records.close(a_status())


def test_settings_that_cannot_be_written_are_told_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run.toml").mkdir()
    records = RunRecords(tmp_path, lambda: PERF, endpoint="host:5555")
    records.tick(a_status())
    records.tick(a_status())
    records.close(a_status())
    (warning,) = caplog.records
    assert "run.toml: cannot be written, the run goes on without" in warning.getMessage()
