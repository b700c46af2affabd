"""
The event file of TensorBoard: its records and their values. Which values it gets, and how often, is not decided here.

The file is written here because a full disk kills the thread of the libraries' own writers, whose queue then fills up.
"""

import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import make_histogram

from ps_common.run_folder.paths import TENSORBOARD
from ps_server.records.bounded_file import AppendedFile

BINS = 30


@dataclass(frozen=True)
class Point:
    """Values at one T, each by its tag."""

    scalars: Mapping[str, float] = field(default_factory=dict)
    histograms: Mapping[str, Sequence[float]] = field(default_factory=dict)  # the values, at least one each
    gifs: Mapping[str, bytes] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.scalars or self.histograms or self.gifs)


class EventFile:
    """
    An event file in RUN_DIR/tensorboard; a resumed run begins another, which TensorBoard joins to the first.

    A full disk is reported once and does not end the run.
    """

    def __init__(self, run_folder: Path) -> None:
        """Raises OSError."""
        folder = run_folder / TENSORBOARD
        folder.mkdir(exist_ok=True)
        # TensorBoard recognises its files by the middle of the name, and orders them by the time at its end.
        path = folder / f"events.out.tfevents.{time.time_ns()}"
        self._file = AppendedFile(path.open("ab", buffering=0), TENSORBOARD)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def add(self, point: Point, *, global_steps: int) -> None:
        """Append a point."""
        summary = Summary(value=_values(point))
        self._write(Event(wall_time=time.time(), step=global_steps, summary=summary))

    def close(self) -> None:
        self._file.close()

    def _write(self, event: Event) -> None:
        self._file.add(_framed(event.SerializeToString()))


def _values(point: Point) -> Iterator[Summary.Value]:
    for tag, value in point.scalars.items():
        yield Summary.Value(tag=tag, simple_value=value)
    for tag, values in point.histograms.items():
        array = np.asarray(values, np.float64)
        yield Summary.Value(tag=tag, histo=make_histogram(array, _edges(array)))
    for tag, gif in point.gifs.items():
        width, height = struct.unpack("<HH", gif[6:10])
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
        yield Summary.Value(tag=tag, image=image)


def _edges(values: np.ndarray) -> np.ndarray:
    """Of equal bins from the lowest to the highest value, wide enough to differ where all values are nearly equal."""
    low, high = values.min(), values.max()
    return np.linspace(low, max(high, low + 1e-6 * max(1.0, abs(low))), BINS + 1)


def _framed(data: bytes) -> bytes:
    """A TFRecord: length, checksum of the length, data, checksum of the data."""
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
