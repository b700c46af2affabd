"""The address of a page: what it has in its file, and which of that a page in its place takes over."""

from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_web.cli import WebSettings, _at_the_address_before, show


@pytest.mark.parametrize(
    ("written", "port", "token"),
    [
        ("http://127.0.0.1:4711/?token=ab%2Bc", 4711, "ab+c"),
        ("", 0, None),
        ("http://127.0.0.1:4711/", 0, None),
        ("http://127.0.0.1:4711/?token=", 0, None),
        ("http://127.0.0.1/?token=abc", 0, None),
        ("http://127.0.0.1:none/?token=abc", 0, None),
    ],
)
def test_a_page_takes_over_a_whole_address_alone(written: str, port: int, token: str | None, tmp_path: Path) -> None:
    (tmp_path / "page").write_text(written)
    settings = WebSettings(server=("127.0.0.1:5555",), port=0, address_file=tmp_path / "page")
    found, used = _at_the_address_before(settings)
    assert found.port == port
    assert used == token if token else len(used) > 16, "a random one, and never an empty one"


def test_a_file_of_the_address_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(SettingsError, match=r"--address-file .*none/page: cannot be written: No such file"):
        show([str(tmp_path), "--port", "0", "--address-file", str(tmp_path / "none" / "page")])
