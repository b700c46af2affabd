"""The names of run folders, and how they are claimed."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_common.run_folder.paths import claim_run_folder, make_run_folder, write_whole


@pytest.mark.parametrize(
    ("experiment", "seed", "name"),
    [
        ("", None, r"runs/pong-\d{8}-\d{6}"),
        ("", 0, r"runs/pong-\d{8}-\d{6}-seed0"),
        ("slow", 3, r"runs/slow/pong-\d{8}-\d{6}-seed3"),
    ],
)
def test_a_folder_is_named_after_its_run(
    experiment: str, seed: int | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make_run_folder(None, experiment=experiment, preset="pong", seed=seed)
    assert re.fullmatch(name, str(folder))
    assert folder.is_dir()


def test_runs_that_start_in_the_same_second_have_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Slurm array starts all its runs at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _: "20300101-120000")
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: make_run_folder(None, experiment="array", preset="pong", seed=1), range(16)))
    first = Path("runs/array/pong-20300101-120000-seed1")
    assert set(made) == {first} | {first.with_name(f"{first.name}-{number}") for number in range(2, 17)}
    assert all(folder.is_dir() for folder in made)


def test_one_of_several_claims_of_a_folder_succeeds(tmp_path: Path) -> None:
    def claims(_: int) -> bool:
        try:
            claim_run_folder(tmp_path)
        except SettingsError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(claims, range(16))) == 1
    with pytest.raises(SettingsError, match=f"--run-dir {tmp_path}: holds a run already"):
        claim_run_folder(tmp_path)


def test_a_file_is_whole_whoever_else_writes_it_at_the_same_time(tmp_path: Path) -> None:
    """Each look finds one writer's content, and nothing is left beside the file."""
    path, contents = tmp_path / "file", [letter * 100_000 for letter in "abcd"]
    write_whole(path, contents[0])
    with ThreadPoolExecutor(4) as threads:
        written = [threads.submit(write_whole, path, content) for content in contents * 20]
        while not all(one.done() for one in written):
            assert path.read_text() in contents
        assert [one.result() for one in written] == [None] * len(written)
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


def test_a_file_and_then_its_name_are_on_disk_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power may leave the name of a file without its content."""
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def flushed(descriptor: int) -> None:
        steps.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def replaced(path: Path, target: Path) -> Path:
        steps.append("replace")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "replace", replaced)
    write_whole(tmp_path / "file", "x")
    assert [step.startswith(".file.") for step in steps] == [True, False, False]
    assert steps[1:] == ["replace", tmp_path.name]
