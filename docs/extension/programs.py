"""The flags of every program, from the settings that its parser fills, and the commands of ps-ctl."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from docs.extension.attributes import Attribute, attributes_of, default_in_words, plain, table, tables, values_of
from ps_common.program.flags import StartingPoint
from ps_ctl import cli as control
from ps_server.settings import ServerSettings
from ps_track.cli import TrackSettings
from ps_web.cli import WebSettings
from rl_cluster.settings import ClusterSettings, WorkersElsewhere
from rl_eval.settings import EvaluationSettings
from rl_worker.settings import WorkerSettings

PROGRAMS: Mapping[str, type] = {
    "ps-server": ServerSettings, "rl-worker": WorkerSettings, "rl-cluster": ClusterSettings,
    "rl-cluster --server": WorkersElsewhere, "rl-eval": EvaluationSettings,
    "ps-web": WebSettings, "ps-track": TrackSettings
}  # fmt: skip
WITH_RUN = ("ps-server", "rl-worker", "rl-cluster")
COMMANDS = (
    control.status, control.top, control.events, control.set_, control.pause, control.resume, control.drain,
    control.checkpoint, control.stop, control.promote, control.plot, control.keygen, control.reshard
)  # fmt: skip
HEAD = ("flag", "values", "default", "what it does")


def flags() -> str:
    """A table for each program, and one of the flags that several have."""
    about = {name: _about(kind) for name, kind in PROGRAMS.items()}
    rows = {name: _rows(kind) for name, kind in PROGRAMS.items()}
    for name in WITH_RUN:
        rows[name] += _rows(StartingPoint)
    return tables("##", HEAD, about, rows) + _commands()


def _about(kind: type) -> str:
    return plain((inspect.getdoc(kind) or "").partition("\n\n")[0])


def _rows(kind: type) -> list[tuple[str, ...]]:
    return [_row(found) for found in attributes_of(kind)]


def _row(found: Attribute) -> tuple[str, ...]:
    name = found.name
    flag = "--import" if name == "imports" else f"--{name.replace('_', '-')}"
    if "Positional" in repr(found.type):
        flag = name.upper()
    values = "a name of `rl-cluster --list`" if name == "preset" else values_of(found)
    return f"`{flag}`", values, default_in_words(found.default), plain(found.text)


def _commands() -> str:
    rows = [_command(command) for command in COMMANDS]
    asked = table(HEAD, [_row(found) for found in attributes_of(control.AskedServer)])
    return (
        f"## ps-ctl\n\n{table(('command', 'what it does', 'its arguments'), rows)}\n"
        f"Commands for a server also take these (`top` without `--json`):\n\n{asked}"
    )


def _command(command: Callable[..., Any]) -> tuple[str, ...]:
    about, _, arguments = (inspect.getdoc(command) or "").partition("Args:\n")
    kinds = inspect.signature(command).parameters
    listed = [
        f"`{name.upper() if kinds[name].kind is inspect.Parameter.POSITIONAL_ONLY else _flag(name)}` {text}"
        for name, text in re.findall(r"^ +(\w+): (.*(?:\n {8,}.*)*)", arguments, re.MULTILINE)
    ]
    first = " ".join(about.partition("\n\n")[0].split())
    name = command.__name__.rstrip("_")
    return f"`{name}`", plain(first), plain(" ".join("; ".join(listed).split()))


def _flag(name: str) -> str:
    return "--import" if name == "imports" else f"--{name}"
