"""
Feeds a machine again what a recording has (`ps-server --record FILE`), and shows the first decision that differs.

`python -m tests.simulation.replay FILE` prints one line an event and one column a member. A recording without vectors
is fed zeros: what guards said of a vector, and whether weights were finite, is taken from the decisions beside it.
"""

import contextlib
import importlib
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import torch
from torch import Tensor

from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import Push, Seed
from ps_common.protocol.tensors import Schema
from ps_common.release import release
from ps_server.machine import admission, push_pipeline, worker_requests
from ps_server.machine.parameter_server import ParameterServer
from ps_server.shell.recording import KIND, PROVEN
from ps_server.shell.recording import decisions as decisions_of
from ps_server.standby import following, promotion
from ps_server.standby.standby import Standby
from ps_server.state import training_run
from ps_server.state.guards import DAMAGED, Denied
from ps_server.state.training_run import TrainingRun
from ps_server.state.weight_store import WeightStore

OURS = ("ps_common.", "ps_server.")
TABLES = {"builtins:dict", "collections:Counter", "collections:OrderedDict", "builtins:list", "builtins:set"}
FROZEN = {"builtins:tuple": tuple, "builtins:frozenset": frozenset}


class Differs(AssertionError):
    """A replayed decision is another one than the recorded one."""


class Restored:
    """Objects from their image. No code runs but ours: only classes of these packages are made, without __init__."""

    def __init__(self, nodes: list[Any]) -> None:
        self._nodes = nodes
        self._made: dict[int, Any] = {}
        self._runs: list[TrainingRun] = []

    def of(self, value: Any) -> Any:
        """The object."""
        if not isinstance(value, list):
            return value
        if len(value) == 3:
            return _vector(*value[:2])
        if len(value) == 2:
            return msgspec.msgpack.decode(value[1], type=_class(value[0]))
        if value[0] not in self._made:
            self._made[value[0]] = self._node(value[0], *self._nodes[value[0]])
        return self._made[value[0]]

    def root(self, value: Any) -> Any:
        """The machine; its runs have stores."""
        machine = self.of(value)
        for run in self._runs:
            if (kept := run.store) is not None:
                run.seed(kept.schema, torch.zeros(kept.schema.size))
                vectors = self.of(kept.vectors) if kept.vectors is not None else run.weights.vectors()  # type: ignore[attr-defined]
                run.weights.restore(vectors, version=kept.version, target_version=kept.target_version)
        return machine

    def _node(self, number: int, kind: str, content: Any) -> Any:
        if kind in TABLES:
            table = self._made[number] = _class(kind)()
            if hasattr(table, "keys"):
                for key, one in content:
                    table[self.of(key)] = self.of(one)
            else:
                (table.update if hasattr(table, "update") else table.extend)(self.of(one) for one in content)
            return table
        match kind:
            case "collections:deque":
                return deque((self.of(one) for one in content[0]), content[1])
            case "builtins:method":
                return getattr(self.of(content[0]), content[1])
            case "functools:partial":
                return partial(self.of(content[0]), **self.of(content[1]))
            case "ps_common.protocol.tensors:Schema":
                return Schema(self.of(content[0]), shard=content[1], shards=content[2])
            case "ps_server.state.weight_store:WeightStore":
                names = ("schema", "version", "target_version", "vectors")
                return SimpleNamespace(**dict(zip(names, [self.of(content[0]), *content[1:]], strict=True)))
            case "builtins:tuple" | "builtins:frozenset":
                return FROZEN[kind](self.of(one) for one in content)
        cls = _class(kind)
        if not isinstance(content, dict):
            return cls(content)  # an enum
        if issubclass(cls, msgspec.Struct):
            return cls(**{name: self.of(one) for name, one in content.items()})
        made = self._made[number] = cls.__new__(cls)
        for name, one in content.items():
            object.__setattr__(made, name, self.of(one))
        if isinstance(made, TrainingRun):
            self._runs.append(made)
        return made


def _class(kind: str) -> Any:
    module, _, name = kind.partition(":")
    assert kind in TABLES or module.startswith(OURS), f"{kind} is no class of a machine"
    found = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, type), kind
    return found


def _vector(size: int | list[int], data: bytes) -> Any:
    """A buffer of so many bytes, or a tensor of this shape."""
    if isinstance(size, int):
        return memoryview(data or bytes(size))
    flat = np.frombuffer(data, dtype="<f4").copy() if data else np.zeros(size, dtype=np.float32)
    return torch.from_numpy(flat).view(size)


def rows_of(path: Path) -> Iterator[list[Any]]:
    """The whole rows of a file; the last may have been cut off."""
    content, at = path.read_bytes(), 0
    while at + 4 <= len(content):
        end = at + 4 + int.from_bytes(content[at : at + 4], "little")
        if end > len(content):
            return
        yield msgspec.msgpack.decode(content[at + 4 : end])
        at = end


class _AsRecorded:
    """Stands for what a machine without its vectors cannot know: the decisions of one row tell it."""

    def __init__(self) -> None:
        self.code = ""  # of a refusal
        self.settled: dict[tuple[int, int], tuple[str, str]] = {}  # verdict and code, by request and sequence
        self.lost = False  # the weights

    def row(self, name: str, decisions: list[Any]) -> None:
        sent = [one for one in decisions if len(one) > 1]
        self.code = next((one[2][1] for one in sent if one[0] == "Refused"), "")
        self.settled = {(one[2][0], one[3][0]): (one[3][1], one[3][2]) for one in sent if one[3]}
        self.lost = any(one[0] == "ReloadCheckpoint" for one in decisions) or (
            name.endswith("reloaded") and bool(decisions)
        )

    def gradient(self, message: Push, vector: Any, schema: Schema) -> tuple[Tensor, float]:
        verdict, code = self.settled.get((message.request, message.sequence), ("applied", ""))
        if verdict == "discarded" or not vector:
            raise Denied(code or "wrong_size", "as it was recorded")
        return torch.zeros(schema.size), 0.0

    def seed(self, message: Seed, vector: Any, shard: Any) -> tuple[Schema, Tensor]:
        if self.code:
            raise Denied(self.code, "as it was recorded")
        schema = Schema(message.schema, shard=shard.number, shards=shard.of)
        return schema, torch.zeros(schema.size)

    def patched(self) -> contextlib.ExitStack:
        """As long as the vectors are zeros."""
        stack = contextlib.ExitStack()
        is_damaged: Callable[..., bool] = lambda *_: self.code == DAMAGED  # noqa: E731
        is_sound: Callable[..., bool] = lambda _: not self.lost  # noqa: E731
        for owner, name, instead in (
            (training_run, "gradient_of", self.gradient),
            (worker_requests, "seed_of", self.seed),
            (push_pipeline, "is_damaged", is_damaged),
            (following, "is_damaged", is_damaged),
            (WeightStore, "is_finite", is_sound),
            (WeightStore, "is_sound", is_sound),
        ):
            stack.enter_context(mock.patch.object(owner, name, instead))
        return stack


@contextlib.contextmanager
def without_secrets() -> Iterator[None]:
    """A worker's secret was recorded as its hash, and the proof of an epoch as what it proved."""
    with contextlib.ExitStack() as stack:
        for owner in (admission, promotion):
            stack.enter_context(mock.patch.object(owner, "proof_of", lambda secret: secret))
        stack.enter_context(mock.patch.object(Lineage, "proves", lambda _self, _epoch, proof: proof == PROVEN))
        yield


def replay(path: Path, *, show: Callable[[str], None] = lambda line: None) -> ParameterServer | Standby:
    """The machine at the end of a recording. Raises Differs."""
    rows = rows_of(path)
    kind, its_release, root, nodes, has_vectors, broken = next(rows)
    assert kind == KIND, f"{path} is no recording"
    if its_release != release():
        show(f"recorded by {its_release}, and played by {release()}")
    machine: Any = Restored(nodes).root(root)
    if found := machine.check():
        show(f"that cannot be: {found}")
    if broken and found != broken:
        raise Differs(f"the state was wrong: {broken}. Now: {found}")
    as_recorded = _AsRecorded()
    with contextlib.nullcontext() if has_vectors else as_recorded.patched(), without_secrets():
        for number, (name, arguments, named, its_nodes, decisions) in enumerate(rows, 1):
            as_recorded.row(name, decisions)
            restored = Restored(its_nodes)
            values = [restored.of(one) for one in arguments]
            fields = {key: restored.of(one) for key, one in named.items()}
            owner, _, method = name.rpartition(".")
            effects = getattr(machine.server if owner else machine, method)(*values, **fields)
            again = msgspec.msgpack.decode(msgspec.msgpack.encode(decisions_of(effects)))
            if again != decisions or name != "tick":
                show(_line(machine, name, values, fields.get("now"), decisions))
            if again != decisions:
                raise Differs(f"call {number}, {name} {values}:\nrecorded {decisions}\nreplayed {again}\n{effects}")
    return machine  # type: ignore[no-any-return]


def _line(machine: Any, name: str, values: list[Any], now: float | None, decisions: list[Any]) -> str:
    said = next((type(one).__name__ for one in values if isinstance(one, msgspec.Struct)), "")
    server = getattr(machine, "server", machine)
    members = server.membership.all() if server is not None else []
    columns = " ".join(f"{one.worker_id}:{one.pushes}{'' if one.alive else ' (gone)'}" for one in members)
    event, decided = f"{name} {said}", " ".join(one[0] for one in decisions)
    return f"{now or 0.0:10.2f} {event:28} {decided:40} {machine!r:60} {columns}"


if __name__ == "__main__":
    replay(Path(sys.argv[1]), show=print)
