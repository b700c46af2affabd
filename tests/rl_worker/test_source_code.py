"""The hash of a module's source: equal where the code is, whatever the folder; another after any change that counts."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_worker.source_code import code_of, code_of_parts

BREAKS = "raise RuntimeError('this module was imported')\n"
FILES = {
    "my_own/__init__.py": BREAKS,
    "my_own/torso.py": "from my_own import drawing\n" + BREAKS,
    "my_own/drawing.py": BREAKS,
    "my_own/layers/dense.py": BREAKS,
    "my_own/.old/torso.py": "X = 1\n",
    "my_own/not-a-module.py": "X = 1\n",
    "my_own/table.csv": "1,2\n",
    "spread/games/line.py": BREAKS,  # of a package without __init__.py
    "beside.py": BREAKS,
    "single.py": "import beside\n" + BREAKS,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), *sys.path])
    before = set(sys.modules)
    yield tmp_path / "here"
    sys.path_importer_cache.clear()
    assert not {name.partition(".")[0] for name in set(sys.modules) - before} & {"my_own", "spread", "beside", "single"}


def write(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_the_hash_is_that_of_the_text_and_not_of_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = ["my_own:Torso", "single:f", "my_own:Torso", "spread.games.line:Env"]
    here = code_of_parts(parts)
    assert list(here) == ["my_own", "single", "spread.games.line"]
    assert here["my_own"].place == f"{folder}/my_own (4 files)"
    assert here["single"].place == f"{folder}/single.py"
    write(folder.parent / "there")
    monkeypatch.setattr(sys, "path", [str(folder.parent / "there"), *sys.path[1:]])
    there = code_of_parts(parts)
    assert [code.hash for code in there.values()] == [code.hash for code in here.values()]
    assert there["my_own"].place.startswith(str(folder.parent / "there"))


@pytest.mark.parametrize(
    ("module", "changed", "counts"),
    [
        ("my_own", "my_own/__init__.py", True),
        ("my_own", "my_own/torso.py", True),
        ("my_own.torso", "my_own/__init__.py", True),  # runs whenever the module is imported
        ("my_own.torso", "my_own/drawing.py", True),
        ("my_own.torso", "my_own/layers/dense.py", True),
        ("my_own", "my_own/.old/torso.py", False),  # of an editor
        ("my_own", "my_own/not-a-module.py", False),
        ("my_own", "my_own/table.csv", False),
        ("my_own", "beside.py", False),
        ("spread.games.line", "spread/games/line.py", True),
        ("single", "single.py", True),
        ("single", "beside.py", False),
        ("single", "my_own/torso.py", False),
    ],
)
def test_a_change_counts_where_it_is_of_the_same_package(module: str, changed: str, counts: bool, folder: Path) -> None:
    before = code_of(module)
    (folder / changed).write_text(FILES[changed] + "\nZ = 2\n")
    assert (code_of(module).hash != before.hash) == counts


def test_the_hash_of_an_installed_package_imports_none_of_its_modules() -> None:
    before = set(sys.modules)
    assert code_of_parts(["gymnasium:CartPole-v1"])["gymnasium"].hash != "none"  # save_video.py needs moviepy
    assert set(sys.modules) == before
