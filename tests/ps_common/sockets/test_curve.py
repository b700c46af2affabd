"""Files of keys, and the flags that name them."""

from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_common.sockets.curve import CurveFlags, read_pair, read_public, write_pair


def test_a_pair_is_read_as_it_was_made(tmp_path: Path) -> None:
    public, secret = write_pair(tmp_path, "me")
    pair = read_pair("--curve-secret", secret)
    assert read_public("a test", public) == pair.public
    assert len(pair.public) == len(pair.secret) == 40
    keys = CurveFlags(curve_server_key=public, curve_secret=secret).client_keys()
    assert keys is not None
    assert (keys.server, keys.own) == (pair.public, pair)


@pytest.mark.parametrize("text", ["", "no key", 'public-key = "short"', f'public-key = "{"~" * 40}"'])
def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.key"
    path.write_text(text)
    with pytest.raises(SettingsError, match=f"--authorized-keys {path}: holds no key"):
        read_public("--authorized-keys", path)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_secret_file_that_others_may_read_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, mode: int
) -> None:
    _, secret = write_pair(tmp_path, "me")
    secret.chmod(mode)
    with pytest.raises(SettingsError, match=f"--curve-secret {secret}: .*mode {mode:04o}.*chmod 600 {secret}"):
        read_pair("--curve-secret", secret)
    secret.chmod(0o400)
    read_pair("--curve-secret", secret)
