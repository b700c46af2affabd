"""The writer's thread and its folder: which checkpoints are kept and found, and the effect of a broken disk."""

import contextlib
import dataclasses
import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ps_common.errors import CheckpointError
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.paths import BEST, CANDIDATE, WRITING, checkpoint_name
from ps_server.state.effects import SaveCheckpoint
from ps_server.storage.checkpoint_writer import CheckpointWriter, Written
from ps_server.storage.earlier_life import newest_checkpoint
from tests.records import a_record

PATIENCE_SECONDS = 60.0  # for a disk that is busy with something else


def a_checkpoint(
    steps: int,
    *,
    best: bool = False,
    keep: int = 5,
    milestone: int | None = None,
    version: int = 1,
) -> SaveCheckpoint:
    """A checkpoint whose content shows its steps."""
    vectors = {"weights": torch.full((5,), float(steps)), "optimizer.step": torch.tensor(float(steps))}
    record = a_record(5, steps=steps, version=version)
    return SaveCheckpoint(vectors, record, global_steps=steps, best=best, keep=keep, milestone=milestone)


def file_name(steps: int, version: int = 1) -> str:
    return checkpoint_name(steps, version)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


@pytest.fixture
def writer(folder: Path) -> Iterator[CheckpointWriter]:
    writer = CheckpointWriter(folder)
    yield writer
    writer.close()


def write(writer: CheckpointWriter, *checkpoints: SaveCheckpoint) -> list[Written]:
    """Hand over checkpoints, and wait for their outcomes."""
    for checkpoint in checkpoints:
        writer.write(checkpoint)
    return [writer.results.get(timeout=PATIENCE_SECONDS) for _ in checkpoints]


def names(folder: Path) -> list[str]:
    """All names in the folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    match how:
        case "cut short":
            content = content[:-3]
        case "empty":
            content.clear()
        case "one bit in a weight":
            content[-1] ^= 1
        case "one letter in the record":
            at = content.index(b"version")
            content[at] ^= 1
        case "noise":
            content = bytearray(b"\xff" * 200)
    path.write_bytes(content)


DAMAGES = ["cut short", "empty", "one bit in a weight", "one letter in the record", "noise"]


# -- writing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [1, 5])
def test_the_newest_checkpoints_are_kept_as_many_as_the_run_says(
    writer: CheckpointWriter, folder: Path, keep: int
) -> None:
    all_steps = (3, 20, 100, 4000, 5000, 60000, 700000)
    write(writer, *[a_checkpoint(steps, keep=keep) for steps in all_steps])
    assert names(folder) == [file_name(steps) for steps in all_steps[-keep:]]


def test_milestones_are_kept_apart_from_the_newest_checkpoints(writer: CheckpointWriter, folder: Path) -> None:
    milestones = {1: 250, 3: 501, 4: 750}
    write(writer, *[a_checkpoint(steps, keep=2, milestone=milestones.get(steps)) for steps in range(1, 9)])
    kept = ["episodes-000000501.safetensors", "episodes-000000750.safetensors"]
    assert names(folder) == [file_name(7), file_name(8), *kept]
    assert [read_checkpoint(folder / name)[1].progress.global_steps for name in kept] == [3, 4]
    assert newest_checkpoint(folder)[0].name == file_name(8), "a run goes on from its newest"


def test_the_best_is_kept_apart_however_old_it_grows(writer: CheckpointWriter, folder: Path) -> None:
    write(writer, a_checkpoint(1), a_checkpoint(2, best=True), *[a_checkpoint(steps) for steps in range(3, 10)])
    assert names(folder) == [BEST, *[file_name(steps) for steps in range(5, 10)]]
    assert read_checkpoint(folder / BEST)[1].progress.global_steps == 2


def test_the_thread_writes_every_checkpoint_before_it_ends(folder: Path) -> None:
    writer = CheckpointWriter(folder)
    for steps in range(1, 4):
        writer.write(a_checkpoint(steps))
    writer.close()
    assert names(folder) == [file_name(steps) for steps in range(1, 4)]


def test_a_disk_that_refuses_is_reported_and_the_next_checkpoint_is_tried(
    writer: CheckpointWriter, folder: Path
) -> None:
    write(writer, a_checkpoint(1))
    shutil.rmtree(folder)
    (failed,) = write(writer, a_checkpoint(2))
    assert failed.place == str(folder / file_name(2))
    assert file_name(2) in failed.error
    folder.mkdir()
    assert write(writer, a_checkpoint(3)) == [Written(str(folder / file_name(3)))]
    assert names(folder) == [file_name(3)]


# -- finding one again ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_newest_checkpoint_is_skipped_with_a_warning_that_names_it(
    writer: CheckpointWriter, folder: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(writer, *[a_checkpoint(steps) for steps in (1, 2, 3)])
    damage(folder / file_name(3), how)
    with caplog.at_level(logging.WARNING):
        path, _, record = newest_checkpoint(folder)
    assert (path.name, record.progress.global_steps) == (file_name(2), 2)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert f"{folder / file_name(3)}: is damaged" in caplog.text
    assert f"{folder / file_name(3)}: moved aside, to {file_name(3)}.aside" in caplog.text
    assert names(folder) == [file_name(1), file_name(2), f"{file_name(3)}.aside"]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_older_checkpoint_is_moved_aside(folder: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    milestones = {1: 10, 2: 20, 3: 30, 4: 40}
    with contextlib.closing(CheckpointWriter(folder)) as writer:
        write(writer, *[a_checkpoint(steps, milestone=milestones[steps]) for steps in milestones])
    kept_apart = {steps: f"episodes-{episodes:09d}.safetensors" for steps, episodes in milestones.items()}
    damage(folder / file_name(3), how)  # a hard link: the one that is kept apart has the same content
    with contextlib.closing(CheckpointWriter(folder)) as writer:
        write(writer, a_checkpoint(5, keep=3, milestone=50))
    assert set(names(folder)) == {
        *(file_name(steps) for steps in (2, 4, 5)),
        *(kept_apart[steps] for steps in (2, 4)),
        "episodes-000000050.safetensors",
        f"{file_name(3)}.aside",
        f"{kept_apart[3]}.aside",
    }
    assert f"{file_name(3)}: is damaged" in caplog.text


def test_a_newer_checkpoint_that_cannot_be_read_is_never_resumed_from(folder: Path) -> None:
    """The file may be readable again tomorrow, when the run has gone on from the one before it."""
    with contextlib.closing(CheckpointWriter(folder)) as writer:
        write(writer, a_checkpoint(1), a_checkpoint(9))
    (folder / file_name(9)).unlink()
    (folder / file_name(9)).mkdir()  # nobody can read it as a file
    assert newest_checkpoint(folder)[0].name == file_name(1)
    assert names(folder) == [file_name(1), f"{file_name(9)}.aside"]


def test_a_run_without_a_sound_checkpoint_cannot_be_resumed(
    writer: CheckpointWriter, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(writer, a_checkpoint(1), a_checkpoint(2))
    damage(folder / file_name(1), "empty")
    damage(folder / file_name(2), "cut short")
    with pytest.raises(CheckpointError, match=f"^{folder}: each of its 2 checkpoints is damaged"):
        newest_checkpoint(folder)
    assert len(caplog.records) == 2


KILLED_WHILE_IT_WRITES = """
import sys, torch
from pathlib import Path
from ps_common.run_folder.checkpoint_file import write_checkpoint
from tests.records import a_record

record = a_record(2**23)
while True:
    name = "checkpoint-000000000007-000000000001.safetensors"
    write_checkpoint(Path(sys.argv[1]) / name, {"weights": torch.ones(2**23)}, record)
"""


def test_unfinished_files_of_a_killed_server_are_removed_at_the_next_start(folder: Path) -> None:
    """Each kill left a file as large as a checkpoint."""
    folder.mkdir(parents=True)
    killed = subprocess.Popen([sys.executable, "-c", KILLED_WHILE_IT_WRITES, str(folder)])
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not list(folder.glob(f"{WRITING}/*")):
            assert time.monotonic() < deadline
            assert killed.poll() is None
    finally:
        killed.kill()
        killed.wait()
    left = {path for path in folder.rglob("*") if path.is_file()} - set(folder.glob("checkpoint-*.safetensors"))
    assert {path.parent for path in left} == {folder / WRITING}
    CheckpointWriter(folder).close()
    assert set(folder.iterdir()) == set(folder.glob("checkpoint-*.safetensors"))


def test_a_candidate_outlives_older_checkpoints_and_becomes_the_best_when_it_is_kept(
    writer: CheckpointWriter, folder: Path
) -> None:
    write(
        writer,
        dataclasses.replace(a_checkpoint(1), candidate=True),
        *(a_checkpoint(steps, keep=2) for steps in (2, 3, 4)),
    )
    kept = [file_name(3), file_name(4)]
    assert names(folder) == sorted([CANDIDATE, *kept])
    writer.keep_candidate()
    write(writer, a_checkpoint(5, keep=2))
    assert names(folder) == sorted([BEST, file_name(4), file_name(5)])
    assert read_checkpoint(folder / BEST)[1].progress.global_steps == 1
