"""Event files, read by TensorBoard's own reader and by hand."""

import random
import struct
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import SCALARS, TENSORS, EventAccumulator
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from ps_common.run_folder.paths import TENSORBOARD
from ps_server.records.tensorboard import EventFile

EVERYTHING = {SCALARS: 0, TENSORS: 0}


def loaded(run_folder: Path) -> EventAccumulator:
    """What TensorBoard shows of a run."""
    reader = EventAccumulator(str(run_folder / TENSORBOARD), size_guidance=EVERYTHING)
    reader.Reload()
    return reader


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


def scalars_of(event: Event) -> dict[str, float]:
    return {value.tag: value.simple_value for value in event.summary.value if value.HasField("simple_value")}


def test_tensorboard_loads_scalars(tmp_path: Path) -> None:
    file = EventFile(tmp_path)
    file.add([("Perf/Reward", 1.5), ("Perf/Length", 7.0)], global_steps=10)
    file.add([("Perf/Reward", 2.5)], global_steps=2**40)
    reader = loaded(tmp_path)  # before it is closed
    assert [(point.step, point.value) for point in reader.Scalars("Perf/Reward")] == [(10, 1.5), (2**40, 2.5)]
    file.close()


def test_a_curve_never_goes_back_however_often_and_wherever_a_run_is_resumed(tmp_path: Path) -> None:
    """Of each T TensorBoard shows what came last, whatever the tag."""
    drawn = random.Random(1)
    kept: dict[str, dict[int, float]] = defaultdict(dict)
    for _ in range(12):
        T = drawn.choice([0, *kept["Perf/Reward"]])
        kept = defaultdict(dict, {tag: {at: one for at, one in was.items() if at <= T} for tag, was in kept.items()})
        file = EventFile(tmp_path)
        file.begin_session(T + 1)
        for _ in range(drawn.randint(0, 9)):
            T += 1000
            for tag in drawn.sample(["Perf/Reward", "logged/mine", "Perf/Length"], 2):
                value = drawn.random()
                file.add([(tag, value)], global_steps=T)
                kept[tag][T] = value
        file.close()
        reader = loaded(tmp_path)
        for tag in ("Perf/Reward", "logged/mine", "Perf/Length"):
            points = reader.Scalars(tag) if kept[tag] else []
            assert [point.step for point in points] == list(kept[tag])
            assert [point.value for point in points] == pytest.approx(list(kept[tag].values()))


FULL_FOR_A_WHILE = """
import resource, sys
from pathlib import Path
from ps_common.run_folder.paths import TENSORBOARD
from ps_server.records.tensorboard import EventFile

folder = Path(sys.argv[1])
file = EventFile(folder)
(path,) = (folder / TENSORBOARD).iterdir()
for step in range(60):
    if step == 10:  # half of the next record has room
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, resource.RLIM_INFINITY))
    if step == 20:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    file.add([("Perf/Reward", 0.0)], global_steps=step)
file.close()
"""


def test_a_disk_that_was_full_for_a_while_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / TENSORBOARD).mkdir()
    subprocess.run([sys.executable, "-c", FULL_FOR_A_WHILE, str(tmp_path)], check=True, capture_output=True)
    steps = [point.step for point in loaded(tmp_path).Scalars("Perf/Reward")]
    assert steps == list(range(60)), "what was refused waited in the buffer"
