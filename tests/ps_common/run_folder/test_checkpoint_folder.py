"""Which files of a folder are checkpoints, and which of them is the newest."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ps_common.run_folder import stored_run
from ps_common.run_folder.checkpoint_folder import newer_than, newest_first, older_than
from ps_common.run_folder.paths import BEST, CHECKPOINTS, MILESTONES, NEWEST, checkpoint_name, milestone_name
from ps_common.run_folder.places import newest_set, newest_step
from ps_common.run_folder.stored_run import Stored
from tests.rows import row

STRAY = [
    "checkpoint-000000100000-good.safetensors",
    "checkpoint-000000100000-2.safetensors",
    "checkpoint-000000100000 (copy).safetensors",
    "checkpoint-100000.safetensors",
    "checkpoint-0000000900000.safetensors",
    "checkpoint-.safetensors",
    "episodes-000000300-good.safetensors",
    "episodes-300.safetensors",
]


def a_folder(run: Path, *names: str) -> Path:
    folder = run / CHECKPOINTS
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).touch()
    return folder


def test_a_copy_under_another_name_is_no_checkpoint_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One was taken for the newest, because its name is longer, and the run went on from an old state."""
    for stray in STRAY:
        with row(stray):
            tmp_path = tmp_path_factory.mktemp("row")
            newest, kept = checkpoint_name(500_000, 1), milestone_name(200)
            folder = a_folder(tmp_path, newest, kept, stray)
            assert newest_first(folder) == [folder / newest]
            assert newest_first(folder, MILESTONES) == [folder / kept]
            assert newest_step(tmp_path) == 500_000
            assert newest_set(tmp_path) == [tmp_path]


def version_name(version: int) -> str:
    """Of one T, as all checkpoints of a client that counts no steps are."""
    return checkpoint_name(0, version)


def step_name(global_steps: int) -> str:
    return checkpoint_name(global_steps, 7)


def former_name(global_steps: int) -> str:
    """As release 0.2 named it."""
    return f"checkpoint-{global_steps:012d}.safetensors"


KINDS = [(NEWEST, version_name), (NEWEST, step_name), (NEWEST, former_name), (MILESTONES, milestone_name)]


@pytest.mark.parametrize(("kind", "name_of"), KINDS)
def test_numbers_of_more_digits_are_newer(tmp_path: Path, kind: str, name_of: Callable[[int], str]) -> None:
    numbers = [10**13, 10**12, 10**12 - 1, 2, 1, 0]
    folder = a_folder(tmp_path, *map(name_of, numbers))
    paths = [folder / name_of(number) for number in numbers]
    assert newest_first(folder, kind) == paths
    assert newer_than(paths[2], kind) == paths[:2]
    assert older_than(paths[2], kind) == paths[3:]


def test_a_former_name_is_older_than_any_of_the_same_step_and_newer_than_those_of_fewer(tmp_path: Path) -> None:
    """A folder that an earlier release began is gone on with."""
    names = [checkpoint_name(6, 1), former_name(5), checkpoint_name(4, 2), checkpoint_name(4, 1), former_name(4)]
    folder = a_folder(tmp_path, *reversed(names))
    assert [path.name for path in newest_first(folder)] == names
    assert [one.file for one in stored_run.newest_first([Stored(1, name) for name in names[::-1]])] == names
    assert newest_step(tmp_path) == 6


def test_a_stray_name_in_an_object_store_is_no_checkpoint_either() -> None:
    for stray in [name for name in STRAY if name.startswith("checkpoint-")]:
        with row(stray):
            objects = [Stored(1, name) for name in (checkpoint_name(5, 1), stray, BEST)]
            assert [one.file for one in stored_run.newest_first(objects)] == [checkpoint_name(5, 1)]
            assert [one.file for one in stored_run.newest_first(objects, BEST)] == [BEST]
