"""The flags of every program, from the settings that its parser fills, or from its own --help where it has commands."""

import inspect
import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout, suppress
from typing import Any
from unittest import mock

from docs.extension.attributes import Attribute, attributes_of, default_in_words, in_words, plain, table
from ps_common.program.flags import StartingPoint
from ps_ctl import cli as control
from ps_server.settings import ServerSettings
from ps_track.cli import TrackSettings
from ps_web.cli import WebSettings
from rl_cluster.settings import ClusterSettings, WorkersElsewhere
from rl_eval.settings import EvaluationSettings
from rl_worker.settings import WorkerSettings

WITH_RUN: Mapping[str, type] = {"ps-server": ServerSettings, "rl-worker": WorkerSettings, "rl-cluster": ClusterSettings}
WITHOUT_RUN: Mapping[str, type] = {
    "rl-cluster --server": WorkersElsewhere, "rl-eval": EvaluationSettings,
    "ps-web": WebSettings, "ps-track": TrackSettings
}  # fmt: skip
HEAD = ("flag", "values", "default", "what it does")


def flags() -> str:
    """A section for each program."""
    sections = [_program(name, kind, names_a_run=name in WITH_RUN) for name, kind in (WITH_RUN | WITHOUT_RUN).items()]
    return "\n\n".join([*sections, _commands("ps-ctl", control.control)])


def _program(name: str, kind: type, *, names_a_run: bool) -> str:
    about = (inspect.getdoc(kind) or "").partition("The flags that matter first:")[0]
    first, _, examples = about.strip().partition("\n\n")
    text = f"## {name}\n\n{plain(first)}\n\n" + (f"```text\n{examples.strip(chr(10))}\n```\n\n" if examples else "")
    text += table(HEAD, [_row(found) for found in attributes_of(kind)])
    if names_a_run:
        text += "\nAnd, to name the run, beside [every setting of it](settings.md):\n\n"
        text += table(HEAD, [_row(found) for found in attributes_of(StartingPoint)])
    return text


def _row(found: Attribute) -> tuple[str, ...]:
    name = found.name
    flag = "--import" if name == "imports" else f"--{name.replace('_', '-')}"
    if "Positional" in repr(found.type):
        flag = name.upper()
    return f"`{flag}`", in_words(found.type), default_in_words(found.default), plain(found.text)


def _commands(name: str, program: Callable[..., Any]) -> str:
    whole = help_of(program, [])
    commands = re.findall(r"^ +• ([a-z-]+)", whole, re.MULTILINE)
    assert commands, whole
    text = f"## {name}\n\n"
    for command in commands:
        text += f"### {name} {command}\n\n```text\n{help_of(program, [command])}\n```\n\n"
    return text


def help_of(program: Callable[..., Any], arguments: list[str]) -> str:
    """The output of a program for --help."""
    printed = io.StringIO()
    with mock.patch.dict("os.environ", COLUMNS="100", NO_COLOR="1"), redirect_stdout(printed), suppress(SystemExit):
        program([*arguments, "--help"])
    text = re.sub(r"\x1b\[[0-9;]*m", "", printed.getvalue())
    assert text.startswith("usage: "), text
    return "\n".join(line.rstrip() for line in text.strip().splitlines())
