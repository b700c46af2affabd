"""
The rules for a command of a page, by the program that it starts. A program without a rule fails a test.

The programs of ps-rl: their own parser takes the whole command line. Others: the files that they name in this
repository exist, and a test runs just that. Rules raise AssertionError or what the parser raises.
"""

import importlib.util
import io
import itertools
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache, partial
from typing import Any

import pytest
import tyro
import yaml

from ps_common.program.flags import parse_program, parse_with_run
from ps_common.protocol.names import is_import_path
from ps_common.settings.run_settings import flag_of
from ps_common.settings.run_spec import ALGORITHM_SETTINGS
from ps_ctl import cli as control
from ps_ctl import folder_commands
from ps_server.settings import ServerSettings
from ps_track.cli import TrackSettings
from ps_web.cli import WebSettings
from rl_agent.algorithms.custom_algorithm import custom_settings
from rl_cluster.settings import ClusterSettings, WorkersElsewhere
from rl_eval.settings import EvaluationSettings
from rl_worker.settings import WorkerSettings
from tests.documents.commands import ELLIPSIS, ROOT

WITH_RUN: Mapping[str, type[Any]] = {
    "ps-server": ServerSettings, "rl-worker": WorkerSettings, "rl-cluster": ClusterSettings
}  # fmt: skip
WITHOUT_RUN: Mapping[str, type[Any]] = {
    "rl-eval": EvaluationSettings, "ps-web": WebSettings, "ps-track": TrackSettings
}  # fmt: skip
# Programs of the system, and the reason why nothing of this repository is checked.
OF_THE_SYSTEM = {
    "(while": "the shell's", "do": "the shell's", "exec": "the shell's", "sleep": "the shell's", "done)": "the shell's",
    "done": "the shell's",
    "cd": "the shell's", "for": "the shell's", ".": "the shell's", "git": "the address depends on the copy",
    "mkdir": "the shell's", "tail": "reads a log", "ssh": "needs another machine", "curl": "needs a network",
    "node": "tests/examples/test_remote_simulator.py runs it", "cc": "tests/examples/test_remote_simulator.py runs it",
    "scancel": "needs Slurm: deploy/slurm/scenario.py", "tensorboard": "a viewer; its reader is in tests",
    "hf": "needs an account of a model hub", "python3.11": "makes a virtual environment, as make does",
}  # fmt: skip


WITH_COMMANDS: Mapping[str, Callable[[Sequence[str]], Any]] = {"ps-ctl": control.control}
OURS = {*WITH_RUN, *WITHOUT_RUN, *WITH_COMMANDS}


class IsParsed(Exception):
    """The command line was taken; the command itself is not run."""


def check(words: Sequence[str]) -> None:
    """Check one whole command. Raises an error that names what is wrong."""
    program, *arguments = words
    if program in ("python", "python3.11") and arguments[:1] == ["-m"]:
        program, *arguments = _module(arguments)
    if program == "exec" and arguments[0] in OURS:
        program, *arguments = arguments
    if program in OURS:
        check_flags(program, arguments)
        if not any(ELLIPSIS in word for word in arguments) and "--tyro-write-completion" not in arguments:
            parse(program, arguments)
        return
    assert program in RULES or program in OF_THE_SYSTEM, f"{program}: no rule; add one to {__file__}"
    if program in RULES:
        RULES[program](arguments)


def check_mention(words: Sequence[str]) -> None:
    """Check a command in the running text, which may have flags without their values."""
    program, *arguments = words
    if program in ("python", "python3.11") and arguments[:1] == ["-m"]:
        program, *arguments = _module(arguments)
    if program in OURS:
        check_flags(program, arguments)
    elif program in RULES:
        RULES[program](arguments)


def is_known(program: str) -> bool:
    return program in {*OURS, *RULES, "python"}


# -- the programs of ps-rl --------------------------------------------------------------------------------------------


def parse(program: str, arguments: Sequence[str]) -> None:
    """The program's own parser takes this command line."""
    if program == "rl-cluster" and "--server" in arguments:
        elsewhere, rest = tyro.cli(WorkersElsewhere, args=arguments, return_unknown_args=True)
        parse("rl-worker", [*elsewhere.of_each_worker, *rest])
    elif program in WITH_RUN:
        own = None if program == "ps-server" else custom_settings
        parse_with_run(WITH_RUN[program], arguments, prog=program, custom_settings=own)
    elif program in WITHOUT_RUN:
        parse_program(WITHOUT_RUN[program], arguments, prog=program)
    else:
        with nothing_is_asked(), pytest.raises(IsParsed):
            WITH_COMMANDS[program](arguments)


@contextmanager
def nothing_is_asked() -> Iterator[None]:
    """ps-ctl takes its command line, and goes no further."""

    def parsed(*_: Any, **__: Any) -> Any:
        raise IsParsed

    with pytest.MonkeyPatch.context() as patched:
        for name in ("_ask", "subscription"):
            patched.setattr(control, name, parsed)
        for name in ("make_keys", "add_keys"):
            patched.setattr(folder_commands, name, parsed)
        patched.setattr("ps_ctl.plots.plot_runs", parsed)
        yield


def check_flags(program: str, arguments: Sequence[str]) -> None:
    """Every flag of these words is one of the program, or of its command."""
    if program == "rl-cluster" and "--server" in arguments:
        check_flags("rl-worker", [word for word in arguments if word.partition("=")[0] != "--workers"])
        return
    known = flags_of_command(program, arguments[0]) if program in WITH_COMMANDS and arguments else flags_of(program)
    for word, value in itertools.pairwise(arguments):
        if word == "--algorithm" and is_import_path(value):
            known |= {flag_of(f"algorithm.{name}") for name in custom_settings(value, {}).__struct_fields__}
    for word in arguments:
        flag = word.partition("=")[0].rstrip("…,")
        if flag.startswith("--") and len(flag) > 2:
            assert flag in known, f"{program} has no flag {flag}"


@cache
def flags_of(program: str) -> frozenset[str]:
    """All flags of a program, with those of every algorithm."""
    if program in WITHOUT_RUN:
        return _flags_in([_help(lambda: parse_program(WITHOUT_RUN[program], ["--help"], prog=program))])
    settings = WITH_RUN.get(program, ServerSettings)
    parsed = partial(parse_with_run, settings, prog=program)
    texts = [_help(partial(parsed, ["--algorithm", name, "--help"])) for name in ALGORITHM_SETTINGS]
    return _flags_in(texts)


@cache
def flags_of_command(program: str, commands: str) -> frozenset[str]:
    """The flags of a program's command; of "status|top" those of both."""
    if commands.startswith("-"):
        return _flags_in([])
    return _flags_in(
        [_help(lambda name=name: WITH_COMMANDS[program]([name, "--help"])) for name in commands.split("|")]
    )  # type: ignore[misc]


def _flags_in(texts: Sequence[str]) -> frozenset[str]:
    return frozenset(flag for text in texts for flag in re.findall(r"--[a-z][a-z-]*", text)) | {
        "--help", "--version", "--tyro-write-completion"
    }  # fmt: skip


def _help(program: Callable[[], Any]) -> str:
    with redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit) as ended:
        program()
    assert ended.value.code == 0, f"no such command: {printed.getvalue()}"
    return printed.getvalue()


# -- others -----------------------------------------------------------------------------------------------------------


def _module(arguments: Sequence[str]) -> list[str]:
    """`python -m NAME`: the program of ours, or else "module", checked to exist."""
    if arguments[1] == "ps_track":
        return ["ps-track", *arguments[2:]]
    return ["module", *arguments[1:]]


def _module_exists(arguments: Sequence[str]) -> None:
    assert importlib.util.find_spec(arguments[0]) is not None, f"no module {arguments[0]}"


def _make(arguments: Sequence[str]) -> None:
    makefile = (ROOT / "Makefile").read_text().replace("$(VENV)", ".venv").replace("$(EXTRA)", "")
    for word in arguments:
        name, is_variable, _ = word.partition("=")
        if ELLIPSIS in name:
            continue
        target = re.escape(name)
        is_there = name in makefile if is_variable else re.search(rf"^{target}:|^[A-Z]+ := {target}$", makefile, re.M)
        assert is_there, f"the Makefile has no {word}"


def _pip(arguments: Sequence[str]) -> None:
    assert arguments[0] in ("install", "wheel")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    pinned = {line.partition("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    for word in arguments[1:]:
        if found := re.fullmatch(r"(?:\.|ps-rl)\[(.*)\]", word):
            assert set(found[1].split(",")) <= extras.keys(), f"pyproject.toml has no extra {found[1]}"
        elif not word.startswith("-"):
            assert word.lower() in pinned or (ROOT / word).exists(), f"{word}: neither pinned nor here"


def _docker(arguments: Sequence[str]) -> None:
    """The files, services and profiles that are named exist; a program of ours that is run takes its flags."""
    files = [ROOT / arguments[at + 1] for at, word in enumerate(arguments) if word == "-f" and ELLIPSIS not in word]
    for file in files:
        assert file.exists(), file
    for at, word in enumerate(arguments):
        if word in OURS:
            check([word, *arguments[at + 1 :]])
            return
    if arguments[:1] != ["compose"]:
        return
    services: dict[str, Any] = {}
    for file in (ROOT / "docker").glob("*.yaml"):
        services |= yaml.safe_load(file.read_text()).get("services") or {}
    profiles = {profile for service in services.values() for profile in service.get("profiles", ())}
    for word, value in itertools.pairwise(arguments):
        if word in ("exec", "logs") or (word == "cp" and ":" in value):
            assert value.partition(":")[0] in services, f"no service {value}"
        if word == "--scale":
            assert value.partition("=")[0] in services, f"no service {value}"
        if word == "--profile":
            assert value in profiles, f"no profile {value}"


def _sbatch(arguments: Sequence[str]) -> None:
    """SCRIPT RUN_DIR, flags of ps-server, and after `--` flags of rl-worker."""
    place = next((at for at, word in enumerate(arguments) if not word.startswith("--")), len(arguments))
    if place < len(arguments) and ELLIPSIS not in arguments[place]:
        assert (ROOT / arguments[place]).exists(), arguments[place]
    rest = list(arguments[place + 2 :])
    cut = rest.index("--") if "--" in rest else len(rest)
    check_flags("ps-server", rest[:cut])
    check_flags("rl-cluster", ["--server", "…", *rest[cut + 1 :]])


RULES: Mapping[str, Callable[[Sequence[str]], None]] = {
    "make": _make,
    "pip": _pip,
    "docker": _docker,
    "sbatch": _sbatch,
    "module": _module_exists,
}
