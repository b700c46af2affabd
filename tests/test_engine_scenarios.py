"""`make engine-test`: which engines there are, and how the end of a scenario is told."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DISPATCHER = ROOT / "deploy" / "engine_test.sh"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def told(root: Path, *arguments: str) -> tuple[int, str]:
    """Exit status of the dispatcher of `root`, and all that it prints."""
    ended = subprocess.run(
        [root / "deploy" / "engine_test.sh", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHON": "python3"},
        check=False,
    )
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with three engines: one passes, one fails, and one is not there."""
    scripts = {"good": "echo $1", "bad": "exit 3", "absent": "echo 'no daemon answers' >&2; exit 77"}
    for engine, script in scripts.items():
        (tmp_path / "deploy" / engine).mkdir(parents=True)
        (tmp_path / "deploy" / engine / "scenario.sh").write_text(script)
    shutil.copy(DISPATCHER, tmp_path / "deploy")
    return tmp_path


def test_a_scenario_that_passes_ends_with_0(root: Path) -> None:
    status, output = told(root, "good", "an argument")
    assert status == 0
    assert output.startswith("an argument\ngood: every step passed")


def test_a_step_that_fails_is_the_exit_status(root: Path) -> None:
    status, output = told(root, "bad")
    assert status == 3
    assert "bad: a step failed (exit status 3)" in output


def test_every_engine_has_a_scenario_that_bash_can_read() -> None:
    folders = [path for path in (ROOT / "deploy").iterdir() if path.is_dir() and not path.name.startswith("_")]
    for folder in folders:
        subprocess.run(["bash", "-n", folder / "scenario.sh"], check=True)
