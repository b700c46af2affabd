"""What a release is called, which of two is later, and what is said of two that do not understand each other."""

import subprocess
from pathlib import Path

import pytest

from ps_common import release as module
from ps_common.protocol.names import is_name
from ps_common.release import (
    VERSION,
    beside,
    is_newer,
    release,
)
from tests.rows import row


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout of another project than this one's, in which the module believes to lie."""
    package = tmp_path / "common" / "ps_common"
    package.mkdir(parents=True)
    monkeypatch.setattr(module, "__file__", str(package / "release.py"))
    return tmp_path


def said() -> str:
    return release.__wrapped__()


def test_it_is_the_version_and_the_commit_of_the_checkout() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    commit = f"+{done.stdout[:9]}" if done.returncode == 0 else ""
    assert said() == f"{VERSION}{commit}"
    assert is_name(release())


def test_it_is_the_version_alone_where_there_is_no_checkout_or_a_broken_one(place: Path) -> None:
    assert said() == VERSION
    (place / ".git").mkdir()
    assert said() == VERSION


def test_which_of_two_releases_is_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "VERSION", "0.10.2")
    for other, is_later in [
        ("0.10.2", False),
        ("0.10.2+0123456", False),
        ("0.10.3", True),
        ("0.9.9", False),
        ("1.0.0.dev0+0123456", True),
        ("0.10.2.dev0", False),
        ("0.10.2rc1", False),
        ("", False),
        ("new", False),
        ("0.10", False),
        ("99999999999999999999.0.0", False),
    ]:
        with row(other):
            assert is_newer(other) == is_later


def test_two_that_do_not_understand_each_other_are_told_both_releases() -> None:
    clause = beside("the server", "99.0.0")
    assert "99.0.0" in clause
    assert release() in clause
    assert beside("the server", release()) == beside("the server", "") == ""
