"""
The checkpoints of a run by the place where they are kept: a run folder, or an object store. The shards of a run have
each a place of its own, below that of the run; their checkpoints, which may be of different moments, are put together
here.

Nothing is changed in a place, and no checkpoint is used before it is verified.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.checkpoint_file import Checkpoint, read_checkpoint
from ps_common.run_folder.checkpoint_folder import best_first, checkpoints_of, first_verified, why_none
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import BEST, SHARD_FOLDERS, SHARD_NAME, numbers_in, shard_folder
from ps_common.run_folder.stored_run import Stored, fetch, newest_first, steps_in, stored_in

Place = Path | ObjectStore
Warn = Callable[[CheckpointError], None]
T = TypeVar("T")


class NoCheckpoint(CheckpointError):
    """A place without a checkpoint that is not damaged."""


@dataclass(frozen=True)
class Candidate:
    """A checkpoint in a place that nobody has verified yet."""

    place: Place
    file: Path | Stored

    def read(self, read: Callable[[Path], T]) -> T:
        """What `read` makes of the file; one in a store is downloaded, and verified, first. Raises CheckpointError."""
        if isinstance(self.file, Path):
            return read(self.file)
        assert isinstance(self.place, ObjectStore)
        with tempfile.TemporaryDirectory() as folder:
            return read(fetch(self.place, self.file, Path(folder)))


def candidates(place: Place, *, best: bool = False) -> list[Candidate]:
    """The checkpoints of a run or of one shard, the newest first; `best`: before them the best, if there is one."""
    if isinstance(place, Path):
        return [Candidate(place, path) for path in (best_first if best else checkpoints_of)(place)]
    objects = stored_in(place)
    return [Candidate(place, one) for one in [*(newest_first(objects, BEST) if best else []), *newest_first(objects)]]


def verified(found: Sequence[Candidate], read: Callable[[Path], T], place: Place, warn: Warn) -> T:
    """What `read` makes of the first candidate that is not damaged. Raises CheckpointError, as `first_verified`."""
    errors: list[str] = []

    def passed_over(_: Candidate, error: CheckpointError) -> None:
        errors.append(str(error))
        warn(error)

    first = first_verified(found, lambda one: one.read(read), passed_over)
    if first is not None:
        return first[1]
    if isinstance(place, Path):
        raise NoCheckpoint(f"{place}: {why_none(place)}")
    reasons = "; ".join(errors) or "there are none"
    raise NoCheckpoint(f"{place.url}: contains no verified checkpoints; {reasons}")


# -- shards -----------------------------------------------------------------------------------------------------------


def newest_set(place: Place) -> list[Place]:
    """
    The places whose checkpoints together hold the newest whole vector: those of all shards in order, or that of the run
    itself; [] when nothing is whole.
    """
    if isinstance(place, Path):
        return [place / name for name in newest_names(place)]
    return [place.below(name) if name else place for name in newest_names(place)]


def newest_names(place: Place) -> list[str]:
    """The names of the folders of `newest_set`; "" is that of a run without shards."""
    steps = newest_steps(place)
    sizes = {1} | {int(match[2]) for match in map(SHARD_NAME.fullmatch, steps) if match}
    sets = [[shard_folder(Path(), number, of).name for number in range(1, of + 1)] for of in sorted(sizes)]
    oldest = [(min(steps.get(name, -1) for name in names), names) for names in sets]
    return max((one for one in oldest if one[0] >= 0), key=lambda one: one[0], default=(-1, []))[1]


def newest_steps(place: Place) -> dict[str, int]:
    """T of the newest checkpoint of a run, under "", and of each of its shards, under the name of its folder."""
    if not isinstance(place, Path):
        return steps_in(place)
    return {"": newest_step(place)} | {one.name: newest_step(one) for one in place.glob(SHARD_FOLDERS)}


def newest_step(folder: Path) -> int:
    """T of the newest checkpoint in a folder; -1 without one."""
    return max((numbers_in(path.name)[0] for path in checkpoints_of(folder)), default=-1)


def read_newest(places: Sequence[Place], warn: Warn) -> list[Checkpoint]:
    """The newest verified checkpoint of each shard. Raises CheckpointError that names the first place without one."""
    return [verified(candidates(place), read_checkpoint, place, warn) for place in places]


def joined(checkpoints: Sequence[Checkpoint]) -> tuple[Schema, dict[str, Tensor]]:
    """
    The schema and the whole vectors. A single number, such as a count of steps, is the largest of any shard.

    Raises CheckpointError when these are not all shards of one run, in order.
    """
    records = [record for _, record in checkpoints]
    places = [(record.lineage.shard.number, record.lineage.shard.of) for record in records]
    runs, schemas = {record.first_shard for record in records}, {Schema(record.schema) for record in records}
    if places != [(number, len(checkpoints)) for number in range(1, len(checkpoints) + 1)]:
        found = ", ".join(f"{number}/{of}" for number, of in places)
        raise CheckpointError(f"expected the checkpoints of shards 1 to {len(checkpoints)} of one run, found {found}")
    if len(runs) > 1 or len(schemas) > 1:
        raise CheckpointError(f"the shards are of different runs or networks: {', '.join(sorted(runs))}")
    parts = [vectors for vectors, _ in checkpoints]
    return schemas.pop(), {name: _joined([part[name] for part in parts]) for name in parts[0]}


def _joined(parts: list[Tensor]) -> Tensor:
    if len(parts) == 1:
        return parts[0]
    return torch.cat(parts) if parts[0].dim() else torch.stack(parts).max()
