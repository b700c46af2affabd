"""The lock of a folder: one holder, which errors name, for as long as it lives."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_common.run_folder.folder_lock import FolderLocks, is_locked

HOLDS_IT = """
import signal, sys
from pathlib import Path
from ps_common.run_folder.folder_lock import FolderLocks

locks = FolderLocks([Path(sys.argv[1])])
print("held", flush=True)
signal.pause()
"""


def test_a_folder_is_the_same_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    locks = FolderLocks([tmp_path / "run", tmp_path / "link", tmp_path / "run" / ".." / "run"])
    for way in ("run", "link"):
        with pytest.raises(SettingsError, match="another ps-server"):
            FolderLocks([tmp_path / way])
    locks.close()


def test_a_server_that_does_not_get_all_folders_keeps_none(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    locks = FolderLocks([other])
    with pytest.raises(SettingsError, match=f"{other}: another ps-server"):
        FolderLocks([one, other])
    FolderLocks([one]).close()
    locks.close()


def test_a_holder_that_is_killed_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDS_IT, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(SettingsError, match=f"pid {holder.pid} on host"):
            FolderLocks([tmp_path])
        holder.kill()
    FolderLocks([tmp_path]).close()


def test_a_child_of_the_holder_does_not_go_on_holding(tmp_path: Path) -> None:
    locks = FolderLocks([tmp_path])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "close_fds": False}
    with subprocess.Popen([sys.executable, "-c", "print('runs', flush=True); input()"], **pipes) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"runs\n"
        locks.close()
        FolderLocks([tmp_path]).close()
        assert child.poll() is None
        child.communicate(b"\n")


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_folder_that_cannot_be_written_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refused(*_: object) -> int:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(SettingsError, match=f"{tmp_path}: cannot be written to: {os.strerror(error)}"):
        FolderLocks([tmp_path])


def test_where_there_are_no_locks_a_server_warns_and_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    FolderLocks([tmp_path]).close()
    (warning,) = caplog.records
    assert f"{tmp_path}: this file system has no locks" in warning.getMessage()


def test_who_looks_whether_a_folder_is_locked_keeps_no_server_from_it(tmp_path: Path) -> None:
    FolderLocks([tmp_path]).close()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_locked(tmp_path)

    looking = [threading.Thread(target=look) for _ in range(2)]
    for thread in looking:
        thread.start()
    try:
        for _ in range(50):
            locks = FolderLocks([tmp_path])
            assert is_locked(tmp_path)
            locks.close()
    finally:
        over.set()
        for thread in looking:
            thread.join()
    assert not is_locked(tmp_path)
