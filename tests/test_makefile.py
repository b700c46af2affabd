"""What `make` installs for what it runs, and that it shows it. Nothing is run: make only says what it would do."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.rows import row

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def installs(*arguments: str) -> list[str]:
    """The commands of pip, were there nothing yet."""
    command = ["make", "--dry-run", "--always-make", *arguments]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in said.splitlines() if "pip install" in line]


def test_running_needs_less_than_testing_and_all_of_it_is_shown() -> None:
    for arguments, what in [
        (["train"], '"."'),
        (["train", "PRESET=cartpole"], '"."'),
        (["train", "PRESET=doom-basic-fast"], '".[doom]"'),
        (["train", "PRESET=inverted-pendulum"], '".[mujoco]"'),
        (["train", "PRESET=pendulum"], '"."'),
        (["train", "PRESET=lunar-lander"], '".[box2d]"'),
        (["train", "PRESET=minatar-breakout"], '".[minatar]"'),
        (["test"], '".[dev]"'),
        (["bench"], '".[dev]"'),
    ]:
        with row(arguments, what):
            (install,) = installs(*arguments)
            assert install.endswith(f"install -c constraints.txt -e {what}")
            assert "--quiet" not in install


def test_the_lowest_versions_are_those_of_every_dependency(tmp_path: Path) -> None:
    subprocess.run(["make", f"OTHERS={tmp_path}", f"{tmp_path}/lowest.txt"], cwd=ROOT, capture_output=True, check=True)
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    expected = [
        f"{requirement.partition('[')[0].partition('>')[0]}=={requirement.partition('>=')[2]}" for requirement in asked
    ]
    assert (tmp_path / "lowest.txt").read_text().splitlines() == expected


def test_who_has_the_developers_tools_installs_nothing_more_to_run() -> None:
    said = subprocess.run(
        ["make", "--dry-run", "--always-make", "check"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    (touched,) = (line.split()[1:] for line in said.splitlines() if line.startswith("touch"))
    extras = ("", "box2d", "doom", "minatar", "mujoco")
    assert touched == [".venv/ready", *(f".venv/run{extra}.ready" for extra in extras)]
