"""Where a run leaves what it leaves behind."""

import re
from pathlib import Path

import pytest

from common.errors import SettingsError
from common.run_folder import make_run_folder


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


def test_the_folder_that_the_user_names_is_taken(tmp_path: Path) -> None:
    given = tmp_path / "a" / "b"
    assert make_run_folder(given, experiment="slow", preset="pong", seed=1) == given
    assert given.is_dir()


def test_a_folder_that_cannot_be_made_is_named_with_the_flag(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=f"--run-dir {tmp_path}/file/inside: cannot be made"):
        make_run_folder(tmp_path / "file" / "inside", experiment="", preset="pong", seed=None)
