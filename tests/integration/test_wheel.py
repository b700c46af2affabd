"""
The wheel as pip installs it: built from the source distribution as others get it, in an environment of its own and in a
folder outside of the checkout.
"""

import shutil
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from deploy.release import run, try_in_a_project
from ps_common.release import BUILT_FROM, VERSION

ROOT = Path(__file__).parent.parent.parent
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
LIBRARIES = ("ps_common", "ps_client", "rl_agent")
PROGRAMS = ("ps_server", "ps_ctl", "ps_web", "ps_track", "rl_worker", "rl_eval", "rl_cluster", "ps_rl")
FOLDERS = {name: ROOT / "common" / name for name in LIBRARIES} | {name: ROOT / name for name in PROGRAMS}
NOT_SOURCE = (".*", "build", "dist", "runs", "*.egg-info", "__pycache__", "*.pyc")
BUILD_SDIST = "from setuptools import build_meta; build_meta.build_sdist('dist')"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
SAY_PLACES = f"""
import {", ".join(FOLDERS)}
for package in ({", ".join(FOLDERS)}):
    print(package.__file__)
"""
IDENTITY = ("-c", "user.name=A", "-c", "user.email=a@example.org")
A_COMMIT = (*IDENTITY, "commit", "--quiet", "--allow-empty", "-m", "A commit")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel. A copy of the checkout is built: setuptools would take stale files of build/ into it."""
    copy = tmp_path_factory.mktemp("built") / "ps-rl"
    shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(*NOT_SOURCE))
    run("git", "init", "--quiet", folder=copy)
    run("git", *A_COMMIT, folder=copy)
    run(sys.executable, "-c", BUILD_SDIST, folder=copy)
    (source,) = (copy / "dist").iterdir()
    flags = ("--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", "wheels")
    run(*PIP, "wheel", *flags, source, folder=copy)
    (built,) = (copy / "wheels").glob("ps_rl-*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the programs of a fresh environment, where of ps-rl the wheel alone is installed."""
    environment = tmp_path_factory.mktemp("fresh") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", environment, folder=wheel.parent)
    python = environment / "bin" / "python"
    run(*PIP, "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel, folder=wheel.parent)
    # The dependencies are those of this interpreter: torch would be downloaded again, a gigabyte. A folder that a .pth
    # file names gets no .pth files of its own read, so an editable installation of the checkout stays unknown.
    (packages,) = environment.glob("lib/python*/site-packages")
    places = dict.fromkeys(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("".join(f"{place}\n" for place in places))
    return python.parent


def test_a_wheel_has_every_file_of_the_packages_and_no_other(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    about = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    files = {
        path.relative_to(folder.parent).as_posix()
        for folder in FOLDERS.values()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc" and not any(part.startswith(".") for part in path.parts[-2:])
    }
    assert names - about == files | {f"ps_common/{BUILT_FROM}"}
    assert {
        "ps_common/presets/pong.toml",
        "ps_web/static/index.html",
        "rl_worker/py.typed",
    } <= names
    assert any(name.endswith("/licenses/LICENSE") for name in about)


def test_every_program_is_installed(wheel: Path, programs: Path, tmp_path: Path) -> None:
    commit = run("git", "rev-parse", "HEAD", folder=wheel.parents[1])
    loads = "from importlib.metadata import distribution\nfor one in distribution('ps-rl').entry_points: one.load()"
    run(programs / "python", "-c", loads, folder=tmp_path)
    assert [program for program in SCRIPTS if not (programs / program).exists()] == []
    assert run(programs / "ps-server", "--version", folder=tmp_path).strip() == f"ps-server {VERSION}+{commit[:9]}"


def test_beside_packages_of_its_user_an_installed_run_learns_and_its_policy_is_taken_away(
    programs: Path, tmp_path: Path
) -> None:
    try_in_a_project(programs / "python", tmp_path)
    assert {path.name for path in (tmp_path / "policy").iterdir()} == {
        "model.safetensors", "settings.toml", "README.md", "receipt.json"
    }  # fmt: skip
    printed = run(programs / "python", "-c", SAY_PLACES, folder=tmp_path)
    assert all(Path(line).is_relative_to(programs.parent) for line in printed.splitlines()), printed
