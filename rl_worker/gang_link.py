"""What the speaker of a gang and a member say to each other, over a pipe, and the memory that they share."""

from multiprocessing.connection import Connection
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from ps_common.protocol.messages import Episode
from ps_common.protocol.tensors import ELEMENT_BYTES
from ps_common.sockets.shared_memory import PAGE_BYTES, Segment

WEIGHTS, TARGET = 0, 1  # rows of the shared memory; the gradient of member N is in row TARGET + N


class Begin(msgspec.Struct, tag=True):
    """The speaker to a member, first: what to play and learn."""

    run: dict[str, Any]
    modules: tuple[str, ...]
    hooks: tuple[str, ...]
    name: str  # of the member, in its log
    worker: int  # the number of the gang in the run
    member: int  # of the gang; 0 is the speaker
    environments: int
    threads: int
    device: str
    seed: int
    memory: str
    size: int  # of a vector


class Answer(msgspec.Struct, tag=True):
    """The speaker to a member: the version of the weights in the shared memory."""

    epoch: int
    version: int
    global_steps: int
    target_version: int
    are_new: bool  # the member has not loaded them
    adjusted: dict[str, Any] | None  # the run, if its settings were adjusted since the last answer


class Leave(msgspec.Struct, tag=True):
    """The speaker to a member, last."""


class Pull(msgspec.Struct, tag=True):
    """A member asks for weights."""

    target: bool


class Push(msgspec.Struct, tag=True):
    """A member has written its gradient into the shared memory, of so many steps, and asks for newer weights."""

    steps: int


class Report(msgspec.Struct, tag=True):
    """A member reports games and meters, and awaits no answer."""

    episodes: list[Episode]
    meters: dict[str, float]


class Link:
    """One end of the pipe."""

    def __init__(self, connection: Connection, heard: Any) -> None:
        """`heard`: the messages that may come."""
        self.connection = connection
        self._decoder = msgspec.msgpack.Decoder(heard)

    def say(self, message: msgspec.Struct) -> None:
        """Raises OSError when the other end is gone."""
        self.connection.send_bytes(msgspec.msgpack.encode(message))

    def hear(self) -> Any:
        """The next message. Raises EOFError or OSError when the other end is gone."""
        return self._decoder.decode(self.connection.recv_bytes())


class Vectors:
    """Vectors of `size` float32 in memory that a gang shares."""

    def __init__(self, segment: Segment, size: int) -> None:
        self._segment, self._size = segment, size
        self._row_bytes = -(-ELEMENT_BYTES * size // PAGE_BYTES) * PAGE_BYTES

    def reserve(self, rows: int) -> None:
        """Raises OSError when there is not enough memory."""
        self._segment.reserve(rows * self._row_bytes)

    def row(self, number: int) -> np.ndarray:
        """A vector [P]: the same memory in every process."""
        return self._segment.part(PAGE_BYTES + number * self._row_bytes, ELEMENT_BYTES * self._size).view(np.float32)

    def tensor(self, number: int) -> Tensor:
        """The same as a tensor."""
        return torch.from_numpy(self.row(number))
