"""The hash of a module's source: equal where the code is, whatever the folder; another after any change that counts."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_worker.shell import source_code
from rl_worker.shell.source_code import code_of, code_of_parts

FILES = {
    "my_own/__init__.py": "from my_own.torso import Torso\n",
    "my_own/torso.py": "import torch\nfrom . import layers\nclass Torso: pass\n",
    "my_own/layers.py": "SIZE = 3\n",
    "my_own/unused.py": "X = 1\n",
    "beside.py": "Y = 1\n",
    "single.py": "def f():\n    import beside\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    write(tmp_path / "here")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "here"), *sys.path])
    yield tmp_path / "here"
    forget()


def write(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("my_own", "beside", "single")]:
        del sys.modules[name]
    sys.path_importer_cache.clear()


def test_the_hash_is_that_of_the_text_and_not_of_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = code_of_parts(["my_own:Torso", "single:f", "my_own:Torso"])
    assert list(here) == ["my_own", "single"]
    assert here["my_own"].place == f"{folder}/my_own/__init__.py and 2 more"
    write(folder.parent / "there")
    monkeypatch.setattr(sys, "path", [str(folder.parent / "there"), *sys.path])
    forget()
    there = code_of_parts(["my_own:Torso", "single:f"])
    assert [code.hash for code in there.values()] == [code.hash for code in here.values()]
    assert there["my_own"].place.startswith(str(folder.parent / "there"))


@pytest.mark.parametrize(
    ("module", "changed", "counts"),
    [
        ("my_own", "my_own/__init__.py", True),
        ("my_own", "my_own/torso.py", True),
        ("my_own", "my_own/layers.py", True),  # imported by what it imports, relatively
        ("my_own.torso", "my_own/__init__.py", True),  # runs whenever the module is imported
        ("my_own", "my_own/unused.py", False),
        ("my_own", "beside.py", False),
        ("single", "beside.py", True),  # imported inside a function, from the same folder
        ("single", "my_own/torso.py", False),
    ],
)
def test_a_change_counts_where_it_is_imported(module: str, changed: str, counts: bool, folder: Path) -> None:
    before = code_of(module)
    (folder / changed).write_text(FILES[changed] + "\nZ = 2\n")
    forget()
    assert (code_of(module).hash != before.hash) == counts


def test_installed_modules_and_builtin_ones_have_a_code_too() -> None:
    assert code_of("sys").hash == "none"
    assert code_of("nowhere_at_all").hash == "none"
    assert code_of("json") == code_of("json")
    assert "json/__init__.py and" in code_of("json").place


def test_packages_of_a_virtual_environment_in_the_folder_are_neither_imported_nor_counted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = folder / ".venv" / "site-packages"
    for name, text in {"beside/__init__.py": "", "beside/broken.py": "raise RuntimeError('is imported')"}.items():
        (installed / name).parent.mkdir(parents=True, exist_ok=True)
        (installed / name).write_text(text)
    (folder / "beside.py").unlink()
    (folder / "single.py").write_text("from beside.broken import anything\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    monkeypatch.setattr(source_code, "INSTALLED", {installed})
    assert code_of("single").place == f"{folder}/single.py"
    assert "beside" not in sys.modules
