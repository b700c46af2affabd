"""
The notes of the shell about its machine: lines in the log, at a limited rate, and with --record all that goes in.

Peers cause some lines ("joined", "is back"), perhaps a thousand times a second. Lines beyond a few a second are left
out and counted. No chatter can hide a warning, and no peer the lines of another (LineLimit).

A recording begins with the whole state of the machine. Each call of it follows: its method, its arguments, and what it
decided. So the machine can be fed again (tests/simulation/replay.py). Of vectors it has the lengths alone, unless they
are asked for; for a worker's secret it has the hash, for the proof of an epoch what it proved. A full file is kept as
FILE.before, and another begins with the state of that moment. All is written by a thread of its own; a disk that fails,
or is slower than what comes, ends the recording and not the server.
"""

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import msgspec
import numpy as np
from torch import Tensor

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import Hello, settlement_of
from ps_common.protocol.tensors import Schema
from ps_common.release import release
from ps_common.settings.regular_file import opened_to_write
from ps_server.machine.admission import proof_of
from ps_server.machine.parameter_server import ParameterServer
from ps_server.machine.phases import ANYBODY
from ps_server.machine.subscriptions import LineLimit
from ps_server.standby.standby import Standby
from ps_server.state.effects import Effect, LogLine, Send
from ps_server.state.weight_store import WeightStore

AT_ONCE, PER_SECOND = 200, 10.0  # hundreds of workers may join at the same moment
KIND = "ps-rl recording 2"
PROVEN, LEAST_SECRET = "proven", 16  # for the proof of an epoch; characters: a shorter text may be part of another
CALLS = {
    "receive", "receive_from_primary", "receive_from_first_shard", "unreadable", "tick", "logged", "was_away", "save",
    "checkpoint_saved", "checkpoint_failed", "reloaded", "reload_failed", "leave", "fence", "claimed",
}  # fmt: skip
DECIDED = ("code", "version", "global_steps", "number", "incarnation", "durable", "credit", "waiting")
SETTLED = attrgetter("sequence", "verdict", "code", "version", "staleness", "durable", "credit")
PLAIN = {bool, int, float, str}
PROTOCOL = {f"ps_common.protocol.{name}" for name in ("lineage", "messages", "record", "status", "tensors")}
ENCODER = msgspec.msgpack.Encoder()
LONGEST_PEER = 255  # bytes of the id of a connection; longer ones are a vector
BATCH_BYTES, MOST_WAITING = 2**18, 256  # for the thread, and batches

log = logging.getLogger("ps-server")


class LogLines:
    """`now` is seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._limit = LineLimit(at_once=AT_ONCE, per_second=PER_SECOND)
        self._left_out = {False: 0, True: 0}  # by whether they are warnings

    def add(self, line: LogLine, *, now: float) -> None:
        """Log a line, unless there were too many."""
        if line.kind == "checkpoint":
            log.debug("%s", line.text)
            return
        if not self._limit.allows(line, now=now):
            self._left_out[line.warning] += 1
            return
        level = logging.WARNING if line.warning else logging.INFO
        if left_out := self._left_out[line.warning]:
            self._left_out[line.warning] = 0
            log.log(level, "(%d more lines of this level were left out)", left_out)
        log.log(level, "%s", line.text)


class Image:
    """
    Objects as plain values: a message as [type, data], a vector as [size, data, None]. What has an identity is a node,
    [type, content], and stands as [its number] elsewhere.
    """

    def __init__(self, lineage: Lineage | None, *, vectors: bool) -> None:
        self.nodes: list[Any] = []
        self._lineage = lineage
        self._vectors = vectors
        self._known: dict[int, tuple[int, Any]] = {}  # by id; the object is kept, so that no other gets its id

    def of(self, value: Any) -> Any:
        """The plain value."""
        kind = type(value)
        if value is None or kind in PLAIN or (kind is bytes and len(value) <= LONGEST_PEER):
            return value
        name, is_message = _about(kind)  # type: ignore[arg-type]
        if is_message:
            return [name, ENCODER.encode(msgspec.structs.replace(value, **self._changes(value)))]
        if kind in (memoryview, bytes, bytearray, Tensor, np.ndarray):
            shape = list(value.shape) if kind is Tensor else memoryview(value).nbytes
            return [shape, np.asarray(value).tobytes() if self._vectors else b"", None]
        if id(value) not in self._known:
            self._known[id(value)] = len(self.nodes), value
            self.nodes.append(None)
            self.nodes[self._known[id(value)][0]] = [name, self._content(value)]
        return [self._known[id(value)][0]]

    def _changes(self, value: Any) -> dict[str, Any]:
        """The fields of a message that are recorded as something else."""
        changes: dict[str, Any] = {"secret": proof_of(value.secret)} if isinstance(value, Hello) else {}
        if getattr(value, "inline", b"") and not self._vectors:
            changes["inline"] = b""
        if proof := getattr(value, "epoch_proof", ""):
            epoch = value.latest_epoch if hasattr(value, "latest_epoch") else value.epoch
            changes["epoch_proof"] = PROVEN if self._lineage and self._lineage.proves(epoch, proof) else ""
        return changes

    def _content(self, value: Any) -> Any:
        if type(value) is list:
            return list(map(self.of, value))
        match value:
            case Mapping():
                return [[self.of(key), self.of(one)] for key, one in value.items()]
            case deque():
                return [[self.of(one) for one in value], value.maxlen]
            case tuple() | Set():
                return [self.of(one) for one in value]
            case Enum():
                return value.value
            case MethodType():
                return [self.of(value.__self__), value.__name__]
            case partial():
                return [self.of(value.func), self.of(value.keywords)]
            case Schema():
                return [self.of(value.specs), value.shard, value.shards]
            case WeightStore():
                vectors = self.of(value.vectors()) if self._vectors else None
                return [self.of(value.schema), value.version, value.target_version, vectors]
            case msgspec.Struct():
                return {name: self.of(getattr(value, name)) for name in value.__struct_fields__}
        fields = vars(value).items() if hasattr(value, "__dict__") else ()
        return {name: self.of(one) for name, one in fields if not isinstance(one, FunctionType)}


@cache
def _about(kind: type) -> tuple[str, bool]:
    """The name of a type, and whether its values are plain data of the protocol."""
    return f"{kind.__module__}:{kind.__qualname__}", issubclass(kind, msgspec.Struct) and kind.__module__ in PROTOCOL


def beginning(machine: ParameterServer | Standby, *, vectors: bool, broken: str = "") -> bytes:
    """The first row of a recording: the state of the machine, and what cannot be of it, if anything."""
    image = Image(lineage := _lineage_of(machine), vectors=vectors)
    return framed([KIND, release(), image.of(machine), image.nodes, vectors, broken], lineage)


def _lineage_of(machine: ParameterServer | Standby) -> Lineage | None:
    return machine.lineage if isinstance(machine, ParameterServer) else getattr(machine.run, "lineage", None)


def framed(row: Sequence[Any], lineage: Lineage | None = None) -> bytes:
    """The length of a row, and the row, in which an equally long text stands for the secret of the run."""
    encoded, secret = ENCODER.encode(row), lineage.secret.encode() if lineage else b""
    encoded = encoded.replace(secret, b"x" * len(secret)) if len(secret) >= LEAST_SECRET else encoded
    return len(encoded).to_bytes(4, "little") + encoded


def decisions(effects: Sequence[Effect] | None) -> list[list[Any]]:
    """Of a call; some return nothing."""
    return list(map(_decision, effects or ()))


def _decision(effect: Effect) -> list[Any]:
    """The kind of an effect, whom it is sent to, and the numbers of it that another machine would decide alike."""
    if not isinstance(effect, Send):
        return [type(effect).__name__]
    message = effect.message
    settlement = settlement_of(message)
    return [
        type(message).__name__,
        effect.to,
        _numbers_of(type(message))(message),
        None if settlement is None else SETTLED(settlement),
    ]


@cache
def _numbers_of(kind: type) -> Callable[[Any], Any]:
    names = [name for name in DECIDED if name in kind.__struct_fields__]  # type: ignore[attr-defined]
    return attrgetter("request", *names) if names else lambda message: (message.request,)


class Recording:
    """Records the calls of one machine from now on, in two files of half of `most_bytes` each at most."""

    def __init__(self, path: Path, machine: ParameterServer | Standby, *, most_bytes: int, vectors: bool) -> None:
        self._path, self._machine, self._run = path, machine, machine.run
        self._most_bytes, self._vectors = most_bytes // 2, vectors
        self._is_inside = False  # a call that was made by another one is part of that
        self._is_over = False
        self._size = 0  # of this file
        self._batch = bytearray()
        self._waiting: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._write, name="recording", daemon=True)
        self._thread.start()
        self._watch(machine, "")
        self._begin()

    def close(self) -> None:
        """Write what is left."""
        self._hand_over()
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=1.0)
            self._thread.join(5.0)

    def _watch(self, machine: ParameterServer | Standby, prefix: str) -> None:
        for name in CALLS & set(dir(machine)):
            setattr(machine, name, self._recorded(prefix + name, getattr(machine, name)))

    def _recorded(self, name: str, method: Callable[..., list[Effect]]) -> Callable[..., list[Effect]]:
        def call(*arguments: Any, **named: Any) -> list[Effect]:
            if self._is_inside or self._is_over:
                return method(*arguments, **named)
            self._is_inside = True
            try:
                effects = method(*arguments, **named)
            finally:
                self._is_inside = False
            try:
                self._add(name, arguments, named, effects)
            except Exception as error:  # a fault of the recording is none of the run
                self._end(repr(error))
            return effects

        return call

    def _add(self, name: str, arguments: Sequence[Any], named: dict[str, Any], effects: list[Effect]) -> None:
        image = Image(lineage := _lineage_of(self._machine), vectors=self._vectors)
        if named.get("sender") is ANYBODY:
            del named["sender"]
        values = list(map(image.of, arguments)), {key: image.of(one) for key, one in named.items()}
        machine, before = self._machine, self._run
        self._run = machine.run
        self._keep(framed([name, *values, image.nodes, decisions(effects)], lineage))
        if self._size > self._most_bytes or (isinstance(machine, Standby) and machine.run is not before):
            self._begin()  # a standby's run comes as vectors
        if isinstance(machine, Standby) and machine.server is not None and "tick" not in vars(machine.server):
            self._watch(machine.server, "server.")
        if name == "tick" or len(self._batch) > BATCH_BYTES:
            self._hand_over()

    def _begin(self) -> None:
        """Begin another file."""
        self._hand_over()
        self._hand_over_one(b"")
        self._size = 0
        self._keep(beginning(self._machine, vectors=self._vectors))
        if self._size > self._most_bytes / 2:
            self._end("the state of the server takes more than a quarter of --record-mib")

    def _keep(self, row: bytes) -> None:
        self._batch += row
        self._size += len(row)

    def _hand_over(self) -> None:
        batch, self._batch = bytes(self._batch), bytearray()
        if batch:
            self._hand_over_one(batch)

    def _hand_over_one(self, batch: bytes) -> None:
        try:
            self._waiting.put_nowait(batch)
        except queue.Full:
            self._end("the disk is slower than what comes")

    def _end(self, why: str) -> None:
        if not self._is_over:
            self._is_over = True
            log.warning("--record %s: cannot be written, the run goes on without it: %s", self._path, why)

    def _write(self) -> None:
        """The thread. An empty batch begins another file."""
        try:
            with contextlib.ExitStack() as opened:
                while (batch := self._waiting.get()) is not None:
                    if not batch:
                        opened.close()
                        if self._path.is_file():
                            self._path.replace(f"{self._path}.before")
                        file = opened.enter_context(opened_to_write(self._path, anew=True, mode=0o600))
                    elif not self._is_over:
                        file.write(batch)
                        file.flush()
        except OSError as error:
            self._end(error.strerror or str(error))
