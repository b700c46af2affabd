"""Texts that leave a program: files are UTF-8 in every locale, and commands to type next can be typed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(file for pattern in ("common/**/*.py", "ps_*/**/*.py", "rl_*/**/*.py") for file in ROOT.glob(pattern))
# A command of ours at the end of a text, before the value of a flag or an argument.
COMMAND = re.compile(r"(^|[\s`(])((rl|ps)-[a-z]+( [\w./=-]+)* (--[a-z-]+|plot|export)|python -m [\w.]+) $")
# Names of addresses and numbers, and of texts whose parts are quoted where they are put together.
NEED_NO_QUOTES = {"servers", "where", "run", "run_in_games", "name", "server", "cluster.endpoint", "missing"}


def nodes(kind: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, kind):
                yield f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}", node


def test_every_text_file_and_pipe_has_an_encoding() -> None:
    """Otherwise it has that of the locale, which in a container is often ASCII."""
    for place, node in nodes(ast.Call):
        assert isinstance(node, ast.Call)
        named = {argument.arg for argument in node.keywords}
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if called in ("read_text", "write_text"):
            assert "encoding" in named, place
        if called in ("run", "Popen", "check_output"):
            assert not {"text", "universal_newlines"} & named, f"{place}: encoding='utf-8' in place of text=True"


def test_what_stands_in_a_printed_command_is_quoted() -> None:
    for place, node in nodes(ast.JoinedStr):
        assert isinstance(node, ast.JoinedStr)
        before = ""
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = ast.unparse(part.value)
                is_safe = value.startswith("shlex.quote(") or value in NEED_NO_QUOTES or part.conversion == ord("r")
                assert is_safe or not COMMAND.search(before), f"{place}: {{{value}}}"
                before += "x"
            else:
                before += str(getattr(part, "value", ""))


@pytest.mark.parametrize("text", ["go on: rl-cluster --resume ", "python -m ps_track ", "`rl-eval --checkpoint "])
def test_a_command_is_recognised(text: str) -> None:
    assert COMMAND.search(text)
