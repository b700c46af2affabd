"""
Trained weights by the place where they are kept: a checkpoint, a run folder, all its shards, an object store, or an
exported policy.

The weights come with the run that they belong to, and with a hash that names them.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol.record import WEIGHTS
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.checkpoint_file import Checkpoint, read_checkpoint
from ps_common.run_folder.object_store import ObjectStore, is_url
from ps_common.run_folder.paths import check_whole_run
from ps_common.run_folder.places import (
    NoCheckpoint,
    Place,
    candidates,
    joined,
    newest_set,
    read_newest,
    verified,
)
from ps_common.run_folder.policy_file import MODEL, read_policy, reading
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec

log = logging.getLogger("ps-rl")


@dataclass(frozen=True)
class Trained:
    """Weights, with the run and the network that they belong to."""

    run: RunSpec
    schema: Schema
    weights: Tensor  # [P]
    global_steps: int
    minutes: float  # of training
    origin: str  # the checkpoint or server, for messages
    sha256: str  # of the checkpoint file; of the weights of a live server
    run_id: str = ""  # "" of an exported policy
    version: int = 0  # of the weights in that run


def trained_in(place: Path | str, *, flag: str = "--checkpoint", newest: bool = False) -> Trained:
    """
    The weights of a checkpoint; of a run folder's best, or newest verified one; of the newest of all shards; of a
    policy; of the best checkpoint in the object store at a URL. `flag` named the place. `newest`: of a run folder,
    whatever its best is. Raises CheckpointError or SettingsError.
    """
    if is_url(str(place)):
        return _trained_in_run(ObjectStore(str(place), flag=flag), flag, newest=False)
    path = Path(place)
    if path.name == MODEL or (path / MODEL).is_file():
        return _trained_policy(path / MODEL if path.is_dir() else path)
    if not path.exists():
        raise CheckpointError(f"{flag} {path}: there is no such file or folder here")
    if not path.is_dir():
        return trained_as(path)
    check_whole_run(path, flag=f"{flag} {path}")
    return _trained_in_run(path, flag, newest=newest)


def _trained_in_run(place: Place, flag: str, *, newest: bool) -> Trained:
    where = place if isinstance(place, Path) else place.url
    if len(shards := newest_set(place)) > 1:
        return _trained_by(read_newest(shards, _warn), where)
    try:
        found = verified(candidates(place, best=not newest), trained_as, place, _warn)
    except NoCheckpoint as error:
        raise CheckpointError(f"{flag} {error}") from error
    return found if isinstance(place, Path) else replace(found, origin=f"{where}, step {found.global_steps}")


def _warn(error: CheckpointError) -> None:
    log.warning("%s; trying another", error)


def _trained_by(checkpoints: Sequence[Checkpoint], source: Path | str, sha256: str = "") -> Trained:
    """The whole weights of a run, or of its shards, whose checkpoints these are. Raises CheckpointError."""
    schema, vectors = joined(checkpoints)
    first, steps = checkpoints[0][1], [record.progress.global_steps for _, record in checkpoints]
    at = f"step {steps[0]}" if len(set(steps)) == 1 else f"steps {min(steps)} to {max(steps)}"
    shards = f", {len(checkpoints)} shards" if len(checkpoints) > 1 else ""
    return Trained(
        run_from_dict(first.run, source=str(source)),
        schema,
        vectors[WEIGHTS],
        steps[0],
        first.progress.minutes,
        f"{source}{shards}, {at}",
        sha256 or sha256_of(vectors[WEIGHTS]),
        first.lineage.run_id,
        first.version,
    )


def trained_as(path: Path) -> Trained:
    """The weights of one checkpoint file. Raises CheckpointError."""
    before, checkpoint = _file_sha256(path), read_checkpoint(path)
    if _file_sha256(path) != before:
        return trained_as(path)  # a live run has put another file in its place
    if (shards := checkpoint[1].lineage.shard.of) > 1:
        raise CheckpointError(f"{path}: is of one of {shards} shards alone; give the folder of their run")
    return _trained_by([checkpoint], path, before)


def _trained_policy(path: Path) -> Trained:
    """The weights of an exported policy. Raises CheckpointError."""
    record, run, schema, weights = read_policy(path)
    steps = record.global_steps
    return Trained(run, schema, weights, steps, record.minutes, f"{path}, step {steps}", _file_sha256(path))


def sha256_of(weights: Tensor) -> str:
    """The hash that names weights without a file."""
    return hashlib.sha256(weights.numpy().tobytes()).hexdigest()


def _file_sha256(path: Path) -> str:
    with reading(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
