"""
Flags to settings: a program's own settings and the run specification, from one command line.

The run starts from --preset or --config; --algorithm and --optimizer choose whose settings are flags; every setting of
the run is then a flag of its own. Which ones were typed is remembered: those are the user's wishes.
"""

import argparse
import dataclasses
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Generic, NoReturn, TypeVar

import tyro

from common.allocator import keep_freed_memory
from common.errors import PsRlError, SettingsError
from common.run_spec import (
    ALGORITHM_SETTINGS,
    OPTIMIZER_SETTINGS,
    RunSpec,
    flag_of,
    flat_settings,
    load_config,
    load_preset,
    presets,
    run_from_dict,
    with_settings,
)

S = TypeVar("S")
_INLINE = tyro.conf.arg(name="")
# With a default given, the fields of the chosen algorithm and optimizer become flags instead of subcommands.
_STYLE = (tyro.conf.AvoidSubcommands,)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """Where the run specification starts from."""

    preset: str | None = None
    """named run: see the README's table"""
    config: Path | None = None
    """TOML file with the run's settings"""
    algorithm: str | None = None
    """algorithm, with its default settings unless the preset uses it too"""
    optimizer: str | None = None
    """rule of the server that applies gradients: sgd, momentum, rmsprop, adam; likewise"""


@dataclasses.dataclass(frozen=True)
class Parsed(Generic[S]):
    """What a command line says. `wishes` are the run's settings that the user typed, flat."""

    program: S
    run: RunSpec
    wishes: dict[str, Any]

    @property
    def names_a_run(self) -> bool:
        """Whether the user said what to train, rather than how."""
        return "preset" in self.wishes or "environment.id" in self.wishes


def parse_program(settings: type[S], argv: Sequence[str] | None, *, prog: str) -> S:
    """The settings of a program that takes no run specification. Exits with usage on bad flags."""
    return tyro.cli(settings, args=argv, prog=prog, config=_STYLE)


def parse_with_run(settings: type[S], argv: Sequence[str] | None, *, prog: str, default_preset: str) -> Parsed[S]:
    """
    A program's settings and the run specification. Exits with usage on bad flags.

    Raises SettingsError when a preset, a file or a value makes no sense.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    start, wishes = _starting_run(arguments, default_preset)
    both = dataclasses.make_dataclass(
        "Flags",
        [
            ("program", Annotated[settings, _INLINE]),
            ("start", Annotated[StartingPoint, _INLINE], StartingPoint()),
            ("run", Annotated[RunSpec, _INLINE], start),
        ],
    )
    both.__doc__ = settings.__doc__
    flags: Any = tyro.cli(both, args=arguments, prog=prog, config=_STYLE)
    typed = {
        key: value
        for key, value in flat_settings(flags.run.to_dict()).items()
        if not key.endswith(".name") or key == "network.name"
        if _is_typed(flag_of(key), arguments)
    }
    # A setting can be of the right type and still out of range: that is checked here.
    run = run_from_dict(flags.run.to_dict(), source="flags")
    return Parsed(flags.program, run, wishes | typed)


def run_program(main: Any, prog: str) -> NoReturn:
    """Call a program's main; an error the user can mend becomes one sentence and exit status 1."""
    # What was imported is never garbage. Were it looked through with each full collection, nobody would be served for
    # the tenth of a second that torch's 180,000 objects take.
    gc.freeze()
    gc.enable()  # ps_server/__main__.py and rl_worker/__main__.py import without it
    keep_freed_memory()
    try:
        sys.exit(main())
    except PsRlError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _starting_run(arguments: list[str], default_preset: str) -> tuple[RunSpec, dict[str, Any]]:
    """The run before its own flags, and the wishes that --preset, --config, --algorithm and --optimizer express."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--preset", "--config", "--environment", "--algorithm", "--optimizer"):
        parser.add_argument(name)
    try:
        known, _ = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise SettingsError(str(error)) from error
    if known.preset is not None and known.config is not None:
        raise SettingsError("--preset and --config both name a run; give one of them")
    wishes: dict[str, Any] = {}
    if known.config is not None:
        run = load_config(Path(known.config))
    elif known.preset is not None:
        run = load_preset(known.preset)
        wishes = {"preset": run.preset}
    else:
        # Another environment than a preset's starts from the defaults, not from settings tuned for Pong.
        run = RunSpec() if known.environment else load_preset(default_preset)
    for section, choices in (("algorithm", ALGORITHM_SETTINGS), ("optimizer", OPTIMIZER_SETTINGS)):
        name = getattr(known, section)
        if name is None:
            continue
        if name not in choices:
            raise SettingsError(f"--{section} {name}: no such {section}; there are {', '.join(choices)}")
        run = with_settings(run, {f"{section}.name": name}, source=f"--{section}")
        wishes[f"{section}.name"] = name
    # Every setting of a file is a wish: of the file as it is now, without those of an optimizer that was replaced.
    return run, flat_settings(run.to_dict()) if known.config is not None else wishes


def _is_typed(flag: str, arguments: list[str]) -> bool:
    spellings = (flag, flag.replace("--", "--no-", 1))
    return any(argument.partition("=")[0].replace("_", "-") in spellings for argument in arguments)


__all__ = ["Parsed", "StartingPoint", "parse_program", "parse_with_run", "presets", "run_program"]
