"""Points for TensorBoard: made of the right reports, under the right names, and readable by its own formats."""

import struct
import time
from pathlib import Path
from typing import Any

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from common.protocol.messages import Episode
from common.run_folder.paths import TENSORBOARD
from ps_server.records.tensorboard import STYLES, SummaryFile, SummaryPoints
from tests.ps_server.records.test_episodes import a_report

METERS = {
    "loss": 1.0, "policy_loss": 2.0, "value_loss": 3.0, "entropy": 4.0, "value": 5.0,
    "gradient_norm": 6.0, "weight_norm": 7.0, "steps_per_second": 100.0, "collect_share": 0.5,
}  # fmt: skip


def points(style: str, **fields: Any) -> SummaryPoints:
    return SummaryPoints(STYLES[style], **({"every_updates": 10, "frames_per_step": 4} | fields))


def events_in(folder: Path) -> list[Event]:
    """Read by hand as TFRecords: length, checksum, data, checksum."""
    events = []
    for path in sorted((folder / TENSORBOARD).glob("*tfevents*")):
        content = path.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            data = content[12 : 12 + length]
            checksums = struct.unpack("<I", content[8:12]) + struct.unpack("<I", content[12 + length : 16 + length])
            assert checksums == (masked_crc32c(content[:8]), masked_crc32c(data))
            events.append(Event.FromString(data))
            content = content[16 + length :]
    return events


def values(event: Event) -> dict[str, float]:
    return {value.tag: value.simple_value for value in event.summary.value}


def test_the_style_perf_has_these_names() -> None:
    made = points("perf")
    made.add(a_report(updates=1, meters=METERS, episodes=(Episode(20.0, 200),)))
    assert made.add(a_report(updates=11, meters=METERS)) == {
        "Perf/Reward": 20.0,
        "Perf/Length": 200.0,
        "Perf/Value": 5.0,
        "Losses/Value Loss": 3.0,
        "Losses/Policy Loss": 2.0,
        "Losses/Entropy": 4.0,
        "Losses/Grad Norm": 6.0,
        "Losses/Var Norm": 7.0,
    }


def test_the_style_model_has_these_names() -> None:
    made = points("model")
    made.add(a_report(updates=1, meters=METERS, episodes=(Episode(20.0, 200),)))
    assert made.add(a_report(updates=11, meters=METERS)) == {
        "model/loss": 1.0,
        "model/policy_loss": 2.0,
        "model/value_loss": 3.0,
        "model/entropy": 4.0,
        "model/global_norm": 7.0,
        "model/gradient_global_norm": 6.0,
        "environment/episode_length": 200.0,
        "environment/episode_reward": 20.0,
        "environment/fps": 400.0,
    }


def test_a_point_is_the_mean_of_what_was_reported_since_the_last() -> None:
    made = points("perf")
    for updates, entropy, score in ((1, 1.0, 10.0), (5, 2.0, 20.0), (10, 3.0, 60.0)):
        assert made.add(a_report(updates=updates, meters={"entropy": entropy}, episodes=(Episode(score, 8),))) == {}
    point = made.add(a_report(updates=12, meters={"entropy": 6.0}))
    assert point == {"Losses/Entropy": 3.0, "Perf/Reward": 30.0, "Perf/Length": 8.0}
    assert made.add(a_report(updates=21, minutes=1.0, meters={"entropy": 9.0})) == {}
    assert made.add(a_report(updates=22, minutes=1.0, meters={"entropy": 11.0})) == {"Losses/Entropy": 10.0}, (
        "no game ended"
    )
    assert made.rest() == {}


def test_a_fast_run_has_no_more_than_a_point_in_two_seconds() -> None:
    """A thousand updates a second made ten points a second: two gigabytes a week."""
    made = points("perf")
    reports = [
        a_report(updates=100 * tick, minutes=tick / 600, meters={"entropy": float(tick)}) for tick in range(1, 101)
    ]
    seen = [point["Losses/Entropy"] for report in reports if (point := made.add(report))]
    assert len(seen) == 5
    assert seen[1] == pytest.approx(sum(range(3, 23)) / 20), "what comes in between is in the next one's mean"


def test_the_rest_is_a_point_of_the_last_reports() -> None:
    made = points("perf")
    made.add(a_report(updates=1, meters={"entropy": 2.0}, episodes=(Episode(20.0, 200),)))
    made.add(a_report(updates=2, meters={"entropy": 4.0}))
    assert made.rest() == {"Losses/Entropy": 3.0, "Perf/Reward": 20.0, "Perf/Length": 200.0}
    assert made.rest() == {}


def test_the_style_model_counts_the_first_worker_and_the_style_perf_all() -> None:
    for style, tag, mean in (("model", "model/entropy", 1.0), ("perf", "Losses/Entropy", 2.0)):
        made = points(style)
        made.add(a_report(updates=0, meters={"entropy": 1.0}))
        made.add(a_report(is_first=False, updates=5, meters={"entropy": 4.0}))
        assert made.add(a_report(updates=10, meters={"entropy": 1.0})) == {tag: mean}


def test_the_file_is_an_event_file(tmp_path: Path) -> None:
    file = SummaryFile(tmp_path)
    file.add({"Perf/Reward": 1.5, "Perf/Length": 7.0}, global_steps=2**40)
    first, second = events_in(tmp_path)  # before it is closed
    assert first.file_version == "brain.Event:2"
    assert (second.step, values(second)) == (2**40, {"Perf/Reward": 1.5, "Perf/Length": 7.0})
    assert 0 <= second.wall_time - first.wall_time < 60
    file.close()


def test_a_resumed_run_adds_a_file(tmp_path: Path) -> None:
    for step in (1, 2):
        file = SummaryFile(tmp_path)
        file.add({"Perf/Reward": 0.0}, global_steps=step)
        file.close()
    assert [event.step for event in events_in(tmp_path) if event.summary.value] == [1, 2]


def test_a_full_disk_is_reported_once_and_ends_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    (tmp_path / TENSORBOARD).mkdir()
    (tmp_path / TENSORBOARD / "events.out.tfevents.1").symlink_to("/dev/full")
    file = SummaryFile(tmp_path)
    for step in range(10):
        file.add({"Perf/Reward": 0.0}, global_steps=step)
    file.close()
    (warning,) = caplog.records
    assert warning.getMessage() == "tensorboard: cannot be written, the run goes on without it: No space left on device"
