"""
A disk that cannot read the newest checkpoint now: whoever wants it is refused, and finds it a moment later.

What was acknowledged is in the newest checkpoint alone, so only damage is a reason to take an older one.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ps_common.errors import CheckpointError, DamagedCheckpoint
from ps_common.run_folder import checkpoint_file, policy_file
from ps_common.run_folder.checkpoint_file import write_checkpoint
from ps_common.run_folder.paths import BEST, CHECKPOINTS, checkpoint_name
from ps_common.run_folder.places import read_newest
from ps_common.run_folder.trained import trained_in
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.earlier_life import newest_checkpoint
from tests.records import LINEAGE, a_record
from tests.rows import row

TRANSIENT = [errno.ESTALE, errno.EIO, errno.EMFILE, errno.ENFILE, errno.EACCES, errno.ENOMEM, errno.ETIMEDOUT]
NEWEST = 2


def steps_of_trained(folder: Path) -> int:
    return trained_in(folder).global_steps


def steps_after_fetching_newest(folder: Path) -> int:
    store = CheckpointStore(a_store(folder), flag="--resume")
    store.fetch_newest(folder / CHECKPOINTS, is_ours=True)
    return newest_checkpoint(folder)[2].progress.global_steps


def steps_of_trained_in_store(folder: Path) -> int:
    return trained_in(a_store(folder)).global_steps


WAYS: dict[str, Callable[[Path], int]] = {
    "a server resumes": lambda folder: newest_checkpoint(folder)[2].progress.global_steps,
    "shards are put together": lambda folder: read_newest([folder], print)[0][1].progress.global_steps,
    "weights are loaded": steps_of_trained,
    "a server resumes from a store": steps_after_fetching_newest,
    "weights are loaded from a store": steps_of_trained_in_store,
}


def a_store(folder: Path) -> str:
    return f"memory://{folder.name}/run"


def a_run_folder(folder: Path) -> Path:
    checkpoints = folder / CHECKPOINTS
    checkpoints.mkdir(parents=True)
    for steps in range(1, NEWEST + 1):
        path = checkpoints / checkpoint_name(steps, 1)
        write_checkpoint(path, {"weights": torch.full((3,), float(steps))}, a_record(steps=steps))
    os.link(path, checkpoints / BEST)
    store = CheckpointStore(a_store(folder), flag="--checkpoint-dir")
    for path in sorted(checkpoints.glob("checkpoint-*")):
        store.put(path, LINEAGE, best=True, milestone="", keep=5)
    return folder


def files_in(folder: Path) -> set[tuple[str, int]]:
    return {(str(path.relative_to(folder)), path.stat().st_size) for path in (folder / CHECKPOINTS).glob("*.safe*")}


@pytest.mark.parametrize("way", WAYS)
def test_what_cannot_be_read_now_is_not_passed_over(
    way: str, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in TRANSIENT:
        with row(errno.errorcode[number]):
            folder = a_run_folder(tmp_path_factory.mktemp("run"))
            before = files_in(folder)

            def failing(path: Path, *, most_bytes: int | None = None, number: int = number) -> None:
                if path.name in (checkpoint_name(NEWEST, 1), BEST):
                    raise OSError(number, os.strerror(number), str(path))

            with monkeypatch.context() as patched:
                patched.setattr(policy_file, "check_regular", failing)
                with pytest.raises(CheckpointError, match=os.strerror(number)) as refused:
                    WAYS[way](folder)
            assert not isinstance(refused.value, DamagedCheckpoint)
            assert checkpoint_name(NEWEST, 1) in str(refused.value) or BEST in str(refused.value)
            assert files_in(folder) == before, "nothing is moved, removed or brought"
            assert WAYS[way](folder) == NEWEST


@pytest.mark.parametrize("way", WAYS)
def test_no_library_hides_that_no_file_can_be_opened(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """safetensors reports any failure as a missing file, and torch as a RuntimeError."""
    for error in (FileNotFoundError("No such file or directory: x"), RuntimeError("unable to open file <x>")):
        folder = a_run_folder(tmp_path / type(error).__name__)

        def failing(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(checkpoint_file, "safe_open", failing)
            with pytest.raises(CheckpointError, match="cannot be read"):
                WAYS[way](folder)
        assert WAYS[way](folder) == NEWEST
