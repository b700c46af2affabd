"""
The steps of B environments, in arrays of fixed size: in memory, or in a mapped file that outlives its process.

Each environment has a timeline of rows, which are numbered from 0 and never change; the newest `length` of them are
kept. A row is a step, or the final observation of a game that was cut off. Observations lie apart as frames. Where an
observation repeats all but the newest frame of the one before it, only the newest frame is stored.

A file may be torn, by a loss of power or by a process that was killed while it wrote a row: pages reach the disk in any
order. Each row and each frame has a checksum over its content and its number. `open` verifies all of them, and what
fails counts as lost.
"""

import fcntl
import json
import mmap
import os
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT = 1
HEADER_BYTES = 4096
LOST, STEP, TERMINATED, FINAL = 0, 1, 2, 3  # kinds of rows; 0 is what a fresh file has everywhere
MORE_FRAMES = 1.25  # frames to rows where frames are shared: the first observation of a game needs all of its own


@dataclass(frozen=True)
class Layout:
    """What the arrays depend on. A file of another layout is not used."""

    environments: int  # B
    length: int  # rows of each environment
    observation: tuple[int, ...]
    observation_dtype: str  # uint8 or float32
    action: tuple[int, ...]
    action_dtype: str  # int64 or float32
    frames: int = 1  # of which an observation consists, along its first axis
    run: str = ""  # the run whose steps these are

    @property
    def frame(self) -> tuple[int, ...]:
        """The shape of one frame."""
        return (self.observation[0] // self.frames, *self.observation[1:]) if self.frames > 1 else self.observation

    @property
    def frame_rows(self) -> int:
        """Frames that are kept of each environment."""
        return self.length if self.frames == 1 else int(self.length * MORE_FRAMES) + self.frames

    def arrays(self) -> Iterator[tuple[str, tuple[int, ...], np.dtype[Any]]]:
        """Name, shape and type of each array, in their order in a file."""
        rows, frames = (self.environments, self.length), (self.environments, self.frame_rows)
        yield "written", (self.environments,), np.dtype(np.int64)
        yield "frames_written", (self.environments,), np.dtype(np.int64)
        yield "last_frame", rows, np.dtype(np.int64)
        yield "reward", rows, np.dtype(np.float32)
        yield "check", rows, np.dtype(np.uint32)
        yield "frame_check", frames, np.dtype(np.uint32)
        yield "kind", rows, np.dtype(np.uint8)
        yield "action", (*rows, *self.action), np.dtype(self.action_dtype)
        yield "frame", (*frames, *self.frame), np.dtype(self.observation_dtype)

    @property
    def bytes(self) -> int:
        """The size of all arrays."""
        return sum(_size(shape, dtype) for _, shape, dtype in self.arrays())

    @classmethod
    def within(cls, most_bytes: int, most_rows: int, **parts: Any) -> "Layout":
        """The longest layout within these bytes, and these rows of all environments."""
        longest = max(1, most_rows // parts["environments"])
        low, high = 1, longest
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if cls(length=middle, **parts).bytes <= most_bytes else (low, middle - 1)
        return cls(length=low, **parts)


class StepRing:
    """The arrays of a layout, and how rows get into them and out of them. One process writes."""

    def __init__(self, layout: Layout, buffer: Any) -> None:
        """`buffer` holds the arrays, all 0 for an empty memory."""
        self.layout = layout
        offset, arrays = 0, dict[str, NDArray[Any]]()
        for name, shape, dtype in layout.arrays():
            arrays[name] = np.frombuffer(buffer, dtype, int(np.prod(shape)), offset).reshape(shape)
            offset += _size(shape, dtype)
        self.written: NDArray[np.int64] = arrays["written"]
        self.kind: NDArray[np.uint8] = arrays["kind"]
        self.reward: NDArray[np.float32] = arrays["reward"]
        self.action = arrays["action"]
        self._frames_written: NDArray[np.int64] = arrays["frames_written"]
        self._last_frame: NDArray[np.int64] = arrays["last_frame"]
        self._check: NDArray[np.uint32] = arrays["check"]
        self._frame_check: NDArray[np.uint32] = arrays["frame_check"]
        self._frame = arrays["frame"]
        self.oldest = np.zeros(layout.environments, np.int64)  # of each environment, the first row that is kept
        self.lost = 0  # rows that the file had and that failed their check

    @classmethod
    def in_memory(cls, layout: Layout) -> "StepRing":
        """An empty ring in private memory, which the system gives page by page."""
        return cls(layout, mmap.mmap(-1, max(1, layout.bytes)))

    @classmethod
    def open(cls, path: Path, layout: Layout) -> "StepRing":
        """
        The ring in this file, with all of its rows that are whole. A file of another layout is emptied first.

        Raises BlockingIOError while another process has it, and OSError.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        header = json.dumps({"format": FORMAT, **asdict(layout)}).encode().ljust(HEADER_BYTES)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.pread(file, HEADER_BYTES, 0) != header:
                os.ftruncate(file, 0)
                os.pwrite(file, header, 0)
            os.ftruncate(file, HEADER_BYTES + layout.bytes)
            ring = cls(layout, memoryview(mmap.mmap(file, 0))[HEADER_BYTES:])
        except BaseException:
            os.close(file)
            raise
        weakref.finalize(ring, os.close, file)  # the lock lives as long as the ring
        ring._verify()
        return ring

    def append(self, environment: int, kind: int, observation: NDArray[Any], action: Any, reward: float) -> None:
        """The next row of an environment. Its content is whole before `written` counts it."""
        row = int(self.written[environment])
        last = self._store(environment, observation, is_first=row == 0)
        slot = row % self.layout.length
        self.kind[environment, slot] = LOST  # while the row is neither the old one nor the new one
        self.action[environment, slot] = action
        self.reward[environment, slot] = reward
        self._last_frame[environment, slot] = last
        self.kind[environment, slot] = kind
        self._check[environment, slot] = self._checksum(environment, row)
        self.written[environment] = row + 1
        self._drop_old(environment)

    def observations(self, environments: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[Any]:
        """[N, ...] a copy of the observations of kept rows."""
        last = self._last_frame[environments, rows % self.layout.length]
        if self.layout.frames == 1:
            found: NDArray[Any] = self._frame[environments, last % self.layout.frame_rows]
            return found
        numbers = last[:, None] - np.arange(self.layout.frames - 1, -1, -1)
        stacked: NDArray[Any] = self._frame[environments[:, None], numbers % self.layout.frame_rows]
        return stacked.reshape(len(rows), *self.layout.observation)

    def _store(self, environment: int, observation: NDArray[Any], *, is_first: bool) -> int:
        """Store the frames of an observation that are new; the number of its newest frame."""
        count, frames = self.layout.frames, observation.reshape(self.layout.frames, *self.layout.frame)
        new = frames
        if count > 1 and not is_first:
            row = int(self.written[environment]) - 1
            # A process that was killed before it counted a row may have left a frame that belongs to none.
            follows = self._last_frame[environment, row % self.layout.length] + 1 == self._frames_written[environment]
            before = self.observations(np.array([environment]), np.array([row]))[0].reshape(frames.shape)
            if follows and np.array_equal(before[1:], frames[:-1]):
                new = frames[-1:]
        for frame in new:
            number = int(self._frames_written[environment])
            slot = number % self.layout.frame_rows
            self._frame[environment, slot] = frame
            self._frame_check[environment, slot] = _crc(number, self._frame[environment, slot])
            self._frames_written[environment] = number + 1
        return int(self._frames_written[environment]) - 1

    def _drop_old(self, environment: int) -> None:
        oldest = max(self.oldest[environment], self.written[environment] - self.layout.length)
        first_frame = self._frames_written[environment] - self.layout.frame_rows
        while self._last_frame[environment, oldest % self.layout.length] - self.layout.frames + 1 < first_frame:
            oldest += 1
        self.oldest[environment] = oldest

    def _checksum(self, environment: int, row: int) -> int:
        slot = row % self.layout.length
        parts = (self.kind, self.action, self.reward, self._last_frame)
        return _crc(row, *(part[environment, slot] for part in parts))

    def _verify(self) -> None:
        """Mark what is not whole as lost, and drop what the frames do not reach."""
        layout = self.layout
        np.maximum(self.written, 0, out=self.written)
        np.maximum(self._frames_written, 0, out=self._frames_written)
        for environment in range(layout.environments):
            written, frames = int(self.written[environment]), int(self._frames_written[environment])
            is_whole = np.zeros(layout.frame_rows, bool)
            for number in range(max(0, frames - layout.frame_rows), frames):
                slot = number % layout.frame_rows
                is_whole[slot] = self._frame_check[environment, slot] == _crc(number, self._frame[environment, slot])
            self.oldest[environment] = max(0, written - layout.length)
            for row in range(self.oldest[environment], written):
                slot = row % layout.length
                last = int(self._last_frame[environment, slot])
                numbers = np.arange(last - layout.frames + 1, last + 1)
                is_kept = max(0, frames - layout.frame_rows) <= numbers[0] and last < frames
                if (
                    self._check[environment, slot] != self._checksum(environment, row)
                    or not is_kept
                    or not is_whole[numbers % layout.frame_rows].all()
                ):
                    self.lost += is_kept or self.kind[environment, slot] == LOST
                    self.kind[environment, slot] = LOST


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Bytes of an array, padded so that the next one is aligned."""
    return -(-int(np.prod(shape)) * dtype.itemsize // 64) * 64


def _crc(number: int, *parts: Any) -> int:
    check = zlib.crc32(number.to_bytes(8, "little"))
    for part in parts:
        check = zlib.crc32(np.asarray(part).tobytes(), check)
    return check
