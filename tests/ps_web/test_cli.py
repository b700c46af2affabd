"""The address of a page: what it has in its file, and which of that a page in its place takes over."""

import sys
from pathlib import Path

import pytest

from ps_common.errors import SettingsError
from ps_common.program.output import line_of_page
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


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (
            ["--token-file", "{folder}/short"],
            r"--token-file .*short: a token that nobody can guess has 16 characters or more",
        ),
        (["--token-file", "{folder}/none"], r"--token-file .*none: cannot be read: No such file"),
        (["--token-file", "{folder}/bytes"], r"--token-file .*bytes: cannot be read: is not a text"),
    ],
)
def test_a_token_that_can_be_guessed_or_read_nowhere_is_refused(flags: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "short").write_text("a\n")
    (tmp_path / "bytes").write_bytes(b"\xff" * 20)
    with pytest.raises(SettingsError, match=f"^{why}"):
        show(["--server", "127.0.0.1:5555", "--port", "0", *(flag.format(folder=tmp_path) for flag in flags)])


@pytest.mark.parametrize("is_terminal", [False, True])
def test_the_printed_line_has_the_token_for_a_terminal_alone(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    line = line_of_page("http://127.0.0.1:1/?token=abc", token_is="in RUN/page")
    said = "http://127.0.0.1:1/?token=abc" if is_terminal else "http://127.0.0.1:1/ (its token is in RUN/page)"
    assert line == f"page: {said}"
