"""Which keys may connect, without connections (test_locked_server.py has those)."""

from pathlib import Path

import pytest

from ps_common.sockets.curve import Pair, read_pair
from ps_ctl.folder_commands import make_keys
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
    with none_left():
        assert not door.callback("", worker)
    assert door.callback("", worker)


@pytest.mark.parametrize("content", ["no key", 'curve\n    public-key = "' + 40 * "#" + '"\n'])
def test_a_damaged_key_file_does_not_fill_the_log_at_each_handshake(
    door: AccessControl, keys: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    (keys / "authorized" / "broken.key").write_text(content)
    worker = pair(keys, "worker").public
    assert all(door.callback("", worker) for _ in range(1000))
    lines = [record.getMessage() for record in caplog.records]
    assert 1 <= len(lines) <= 10
    assert "broken.key" in lines[0]


def test_keys_that_are_refused_without_end_are_named_ever_more_rarely(
    door: AccessControl, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(1000):
        assert not door.callback("", f"{number:040d}".encode())
    assert len(caplog.records) == 10
