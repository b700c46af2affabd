"""
What the speaker of a gang and a member send each other, over a pipe, the memory that they share, and a member as the
speaker sees it.
"""

import select
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import msgspec
import numpy as np
import torch
from torch import Tensor

from ps_common.errors import PsRlError
from ps_common.program.child_processes import LinkedChild
from ps_common.program.stop_signals import Interrupted
from ps_common.protocol.messages import Episode
from ps_common.protocol.tensors import ELEMENT_BYTES
from ps_common.sockets.shared_memory import PAGE_BYTES, Segment

END_SECONDS = 5.0  # for a member that has closed its end of the pipe to end
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
    is_seeded: bool  # whether somebody has given the seed, and games depend on it
    memory: str
    size: int  # of a vector
    replay_folder: str | None = None
    run_id: str = ""


class Answer(msgspec.Struct, tag=True):
    """The speaker to a member: the version of the weights in the shared memory."""

    epoch: int
    version: int
    global_steps: int
    target_version: int
    are_new: bool  # the member has not loaded them
    adjusted: dict[str, Any] | None  # the run, if its settings were adjusted since the last answer
    workers: int = 0  # as in Newest
    recalls: int = 0


class Leave(msgspec.Struct, tag=True):
    """The speaker to a member, last."""


class Pull(msgspec.Struct, tag=True):
    """A member asks for weights."""

    target: bool


class Push(msgspec.Struct, tag=True):
    """A member has made `steps`, has written its gradient into the shared memory, and asks for newer weights."""

    steps: int
    has_gradient: bool = True
    blocks: tuple[str, ...] = ()  # that it moves; () are all


class Report(msgspec.Struct, tag=True):
    """A member reports games and meters, and awaits no answer."""

    episodes: list[Episode]
    meters: dict[str, float]


class Link:
    """One end of the pipe."""

    def __init__(self, connection: Connection, expected: Any) -> None:
        """`expected`: the messages that may come."""
        self.connection = connection
        self._decoder = msgspec.msgpack.Decoder(expected)
        self._poll = select.poll()  # Connection.poll makes one at each call, which takes longer than all else here
        self._poll.register(connection, select.POLLIN)

    def send(self, message: msgspec.Struct) -> None:
        """Raises OSError when the other end is gone."""
        self.connection.send_bytes(msgspec.msgpack.encode(message))

    def waits(self, *, seconds: float = 0.0) -> bool:
        """Whether a message waits, or the other end is gone, within this time."""
        return bool(self._poll.poll(1000 * seconds))

    def receive(self) -> Any:
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


class Member:
    """A process that acts and learns, and asks the speaker."""

    def __init__(self, begin: Begin, start: Callable[[], LinkedChild]) -> None:
        self.number = begin.member
        self.asked: Pull | Push | None = None
        self.is_to_adjust = False  # with its next answer
        self.version = (0, 0)  # epoch and version of the weights that it has
        self.meters: dict[str, float] = {}
        self.child = start()
        self.link = Link(self.child.link, Pull | Push | Report)
        self._name = begin.name
        self._episodes: list[Episode] = []
        self.say(begin)

    @property
    def asks_for_target(self) -> bool:
        """Whether it waits for the weights of the target network."""
        return self.asked == Pull(target=True)

    def read(self) -> bool:
        """Read what it has sent, without waiting. Returns whether it is still there."""
        try:
            while self.link.waits():
                said = self.link.receive()
                if isinstance(said, Report):
                    self._episodes += said.episodes
                    self.meters = said.meters or self.meters
                else:
                    self.asked = said
        except (EOFError, OSError):
            return False
        return True

    def say(self, message: Begin | Answer | Leave) -> None:
        self.asked = None
        with suppress(OSError):  # the next look finds it gone
            self.link.send(message)

    def raise_its_end(self) -> NoReturn:
        """It is gone. Raises Interrupted where a signal has asked it to leave, else PsRlError with its reason."""
        self.child.end(within_seconds=END_SECONDS)
        if self.child.has_left:
            raise Interrupted
        raise PsRlError(f"{self._name} ended, and its gang with it: {self.child.cause_of_death()}")

    def take_episodes(self) -> list[Episode]:
        """Those reported since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes
