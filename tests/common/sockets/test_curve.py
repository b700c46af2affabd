"""Files of keys: what is wrong with one is told with the flag and the file."""

from pathlib import Path

import pytest

from common.errors import SettingsError
from common.sockets.curve import read_client_keys, read_pair, read_public, write_pair


def test_a_pair_is_read_as_it_was_made(tmp_path: Path) -> None:
    public, secret = write_pair(tmp_path, "me")
    pair = read_pair("--curve-secret", secret)
    assert read_public("a test", public) == pair.public
    assert len(pair.public) == len(pair.secret) == 40
    keys = read_client_keys(public, secret)
    assert keys is not None
    assert (keys.server, keys.own) == (pair.public, pair)


def test_without_files_there_are_no_keys() -> None:
    assert read_client_keys(None, None) is None


@pytest.mark.parametrize("flag", ["secret", "server-key"])
def test_one_flag_of_two_is_told(tmp_path: Path, flag: str) -> None:
    files = {"server_key": tmp_path / "x" if flag == "server-key" else None}
    files["secret"] = tmp_path / "x" if flag == "secret" else None
    with pytest.raises(SettingsError, match=f"--curve-{flag}: is of no use without"):
        read_client_keys(**files)


def test_the_public_half_is_no_secret(tmp_path: Path) -> None:
    public, _ = write_pair(tmp_path, "me")
    with pytest.raises(SettingsError, match=f"--curve-secret {public}: holds no secret key"):
        read_pair("--curve-secret", public)


@pytest.mark.parametrize("text", ["", "no key", 'public-key = "short"', f'public-key = "{"~" * 40}"'])
def test_a_damaged_file_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.key"
    path.write_text(text)
    with pytest.raises(SettingsError, match=f"--authorized-keys {path}: holds no key"):
        read_public("--authorized-keys", path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no key"):
        read_public("--curve-server-key", tmp_path / "nowhere")
