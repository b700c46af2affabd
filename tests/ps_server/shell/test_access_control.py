"""Which keys may connect, without connections (test_locked_server.py has those)."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_common.sockets.curve import Pair, read_pair, read_public, write_pair
from ps_ctl.folder_commands import make_keys
from ps_server.shell import authorized_keys
from ps_server.shell.access_control import AccessControl
from tests.descriptors import none_left


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    make_keys(tmp_path / "keys")
    return tmp_path / "keys"


@pytest.fixture
def door(keys: Path) -> AccessControl:
    return AccessControl(pair(keys, "server"), keys / "authorized")


def pair(keys: Path, name: str) -> Pair:
    return read_pair("a test", keys / f"{name}.key_secret")


def test_keys_in_the_folder_may_connect_and_those_of_admins_may_stop_the_run(
    door: AccessControl, keys: Path, tmp_path: Path
) -> None:
    make_keys(tmp_path / "others")
    worker, admin = pair(keys, "worker").public, pair(keys, "admin").public
    assert door.callback("", worker)
    assert door.callback("", admin)
    assert not door.callback("", pair(tmp_path / "others", "worker").public)
    assert door.is_admin(admin.decode())
    assert not door.is_admin(worker.decode())


def test_a_handshake_while_no_file_can_be_opened_is_refused_and_a_later_one_accepted(
    door: AccessControl, keys: Path
) -> None:
    """An exception would end the authenticator's thread, and nobody could connect any more."""
    worker = pair(keys, "worker").public
    os.utime(keys / "authorized")
    with none_left():
        assert not door.callback("", worker)
    assert door.callback("", worker)


def test_keys_that_are_refused_without_end_are_named_ever_more_rarely(
    door: AccessControl, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        assert not door.callback("", f"{number:040d}".encode())
    assert len(caplog.records) == 10


def reads_of(keys: Path, monkeypatch: pytest.MonkeyPatch, *, files: int) -> Iterator[int]:
    """The files that each handshake of an unknown key reads, in a folder of so many that was made a while ago."""
    authorized = keys / "authorized"
    for number in range(files):
        make_key(authorized / f"many{number}.key")
    long_ago = time.time() - 60
    for path in (*authorized.rglob("*"), authorized):
        os.utime(path, (long_ago, long_ago))
    count, read_public = [0], authorized_keys.read_public

    def counted(what: str, path: Path) -> bytes:
        count[0] += 1
        return read_public(what, path)

    monkeypatch.setattr(authorized_keys, "read_public", counted)
    control = AccessControl(pair(keys, "server"), authorized)
    while True:
        before = count[0]
        assert not control.callback("", b"0" * 40)
        yield count[0] - before


def make_key(path: Path) -> str:
    public, secret = write_pair(path.parent, path.stem)
    secret.unlink()
    return read_public("a test", public).decode()


@pytest.mark.parametrize("files", [1, 30])
def test_handshakes_read_each_key_file_once_however_many_there_are(
    keys: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    reads = reads_of(keys, monkeypatch, files=files)
    assert sum(next(reads) for _ in range(1000)) == 0, "the start has read them"


def test_each_change_of_the_folder_counts_at_the_next_question(door: AccessControl, keys: Path) -> None:
    """Added, demoted, made an admin, removed: the connection that is open has the rights of the moment."""
    authorized, admins = keys / "authorized", keys / "authorized" / "admins"
    for number in range(20):
        path = authorized / f"late{number}.key"
        key = make_key(path)
        assert (door.callback("", key.encode()), door.is_admin(key)) == (True, False)
        path = path.rename(admins / path.name)
        assert (door.callback("", key.encode()), door.is_admin(key)) == (True, True)
        path = path.rename(authorized / path.name)
        assert (door.is_admin(key), door.is_authorised(key)) == (False, True)
        path = path.rename(admins / path.name)
        assert door.is_admin(key)
        path.unlink()
        assert (door.is_admin(key), door.is_authorised(key), door.callback("", key.encode())) == (False, False, False)


def test_the_servers_own_key_is_an_admins_whatever_the_folder_holds(door: AccessControl, keys: Path) -> None:
    own = pair(keys, "server").public
    (keys / "authorized").rename(keys / "gone")
    assert (door.callback("", own), door.is_admin(own.decode()), door.is_authorised(own.decode())) == (True, True, True)


def test_a_folder_that_is_gone_lets_nobody_in_and_ends_no_open_connection(door: AccessControl, keys: Path) -> None:
    worker, admin = pair(keys, "worker").public, pair(keys, "admin").public
    (keys / "authorized").rename(keys / "gone")
    assert (door.callback("", worker), door.is_admin(admin.decode())) == (False, False)
    assert door.is_authorised(worker.decode())
