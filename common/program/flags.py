"""
Flags to settings: a program's own settings and the run specification, from one command line.

The run starts from --preset or --config; --algorithm and --optimizer choose whose settings are flags; every setting of
the run is then a flag of its own. Which ones were typed is remembered: those are the user's overrides. -h shows a
program's first flags (its docstring), --help all, in groups.
"""

import argparse
import dataclasses
import gc
import inspect
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, NoReturn, TypeVar

import msgspec
import tyro

from common.errors import PsRlError, SettingsError
from common.program.allocator import keep_freed_memory
from common.program.names_elsewhere import name_here
from common.program.output import lenient_output
from common.run_folder.paths import SETTINGS
from common.settings.another_game import for_another_game, game_name, left_behind_in_words
from common.settings.run_spec import (
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
NO_MEMORY = "can't allocate memory"  # says torch's RuntimeError
_INLINE = tyro.conf.arg(name="")
# With a default given, the fields of the chosen algorithm and optimizer become flags instead of subcommands. The
# settings of a section are a group in the help text, and flags without a prefix.
_STYLE = (tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes)

if TYPE_CHECKING:
    PresetName = str
    AlgorithmName = str
    OptimizerName = str
else:  # choices, for help texts and the completion of shells
    PresetName = tyro.extras.literal_type_from_choices(presets())
    AlgorithmName = tyro.extras.literal_type_from_choices(ALGORITHM_SETTINGS)
    OptimizerName = tyro.extras.literal_type_from_choices(OPTIMIZER_SETTINGS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """Where the run specification starts from."""

    preset: PresetName | None = None
    """named run; rl-cluster --list says what each is. With --environment its settings play another game"""
    config: Path | None = None
    """TOML file with the run's settings"""
    algorithm: AlgorithmName | None = None
    """algorithm, with its default settings unless the preset uses it too"""
    optimizer: OptimizerName | None = None
    """rule of the server that applies gradients; likewise"""


@dataclasses.dataclass(frozen=True)
class Parsed(Generic[S]):
    """
    What a command line says. `overrides` are the run's settings that the user typed, flat; `remark` is what the user
    did not ask for and must know, or ""; `module` is the one that a typed --environment names, or "".
    """

    program: S
    run: RunSpec
    overrides: dict[str, Any]
    remark: str = ""
    module: str = ""

    @property
    def names_a_run(self) -> bool:
        """Whether the user said what to train, rather than how."""
        return "preset" in self.overrides or "environment.id" in self.overrides


def parse_program(settings: type[S], argv: Sequence[str] | None, *, prog: str) -> S:
    """The settings of a program that takes no run specification. Exits with usage on bad flags."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    answer_version(arguments, prog)
    _check_names(arguments, _flags_of(settings))
    return tyro.cli(settings, args=arguments, prog=prog, config=_STYLE)


def parse_with_run(settings: type[S], argv: Sequence[str] | None, *, prog: str, default_preset: str) -> Parsed[S]:
    """
    A program's settings and the run specification. Exits with usage on bad flags.

    Raises SettingsError when a preset, a file or a value makes no sense.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    answer_version(arguments, prog)
    _answer_short_help(arguments, settings, prog)
    start, overrides, remark = _starting_run(arguments, default_preset)
    run_flags = {flag_of(key) for key in flat_settings(start.to_dict())}
    _check_names(arguments, run_flags | _flags_of(settings) | _flags_of(StartingPoint))
    both = _flags_class(settings, start)
    defaults = f"Where nothing else is said, defaults are those of {start.preset}: --preset NAME --help shows NAME's."
    described = f"{inspect.getdoc(settings)}\n\n{defaults}"
    flags: Any = tyro.cli(both, args=arguments, prog=prog, config=_STYLE, description=described)
    asked = {"preset": start.preset} | {
        field.name: msgspec.to_builtins(getattr(flags, field.name)) for field in _run_fields(start)
    }
    typed = {
        key: value
        for key, value in flat_settings(asked).items()
        if not key.endswith(".name") or key == "network.name"
        if _is_typed(flag_of(key), arguments)
    }
    # A setting can be of the right type and still out of range: that is checked here.
    run = run_from_dict(asked, source="flags")
    module = run.environment.module if "environment.id" in typed else ""
    return Parsed(flags.program, run, overrides | typed, remark, module)


def answer_version(arguments: Sequence[str], prog: str) -> None:
    """Exits with the version where --version is asked for."""
    if "--version" in arguments:
        print(f"{prog} {version('ps-rl')}")
        sys.exit(0)


def run_program(main: Any, prog: str) -> NoReturn:
    """Call a program's main; an error the user can mend becomes one sentence and exit status 1."""
    # What was imported is never garbage. Were it looked through with each full collection, nobody would be served for
    # the tenth of a second that torch's 180,000 objects take.
    gc.freeze()
    gc.enable()  # common/program/start.py imports without it
    keep_freed_memory()
    with lenient_output(prog):
        try:
            sys.exit(main())
        except PsRlError as error:
            print(f"{prog}: {error}", file=sys.stderr)
            sys.exit(1)
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and NO_MEMORY not in str(error):
                raise
            print(f"{prog}: there is not enough memory for these settings: {error}", file=sys.stderr)
            sys.exit(1)
        except KeyboardInterrupt:
            sys.exit(130)


def _starting_run(arguments: list[str], default_preset: str) -> tuple[RunSpec, dict[str, Any], str]:
    """
    The run before its own flags, the overrides that --preset, --config, --algorithm and --optimizer express, and a
    remark.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("--preset", "--config", "--environment", "--algorithm", "--optimizer", "--resume"):
        parser.add_argument(name)
    try:
        known, _ = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise SettingsError(str(error)) from error
    if known.preset is not None and known.config is not None:
        raise SettingsError("--preset and --config both name a run; give one of them")
    remark = ""
    if known.config is not None or known.preset is not None:
        file = load_preset(known.preset) if known.config is None else load_config(Path(known.config))
        run, left = for_another_game(file, known.environment or file.environment.id)
        if run is not file:
            left = {key: value for key, value in left.items() if not _is_typed(flag_of(key), arguments)}
            remark = left_behind_in_words(run, file.preset, left)
    elif known.resume is not None and (kept := Path(known.resume) / SETTINGS).exists():
        run = load_config(kept)  # of which only what is typed beside it is a wish
    elif known.environment is not None:
        # Another environment than a preset's starts from the defaults, not from settings tuned for Pong.
        run = RunSpec(preset=game_name(known.environment))
    else:
        run = load_preset(default_preset)
    overrides = {} if known.preset is None else {"preset": run.preset}
    for section, choices in (("algorithm", ALGORITHM_SETTINGS), ("optimizer", OPTIMIZER_SETTINGS)):
        name = getattr(known, section)
        if name is None:
            continue
        if name not in choices:
            raise SettingsError(f"--{section} {name}: no such {section}; there are {', '.join(choices)}")
        run = with_settings(run, {f"{section}.name": name}, source=f"--{section}")
        overrides[f"{section}.name"] = name
    # Every setting of a file is a wish: of the file as it is now, without those of an optimizer that was replaced.
    return run, flat_settings(run.to_dict()) if known.config is not None else overrides, remark


def _flags_class(settings: type[Any], start: RunSpec) -> type[Any]:
    """
    What tyro is to fill: the program's settings, the starting point, and each section of the run as a group.

    Algorithm and optimizer have the types of the starting run's, whose settings are flags.
    """
    flags: list[Any] = [
        ("program", Annotated[settings, _INLINE]),
        ("start", Annotated[StartingPoint, _INLINE], StartingPoint()),
    ]
    for field in _run_fields(start):
        default = getattr(start, field.name)
        kind = type(default) if isinstance(default, msgspec.Struct) else field.type
        flags.append((field.name, kind, default))
    return dataclasses.make_dataclass("Flags", flags)


def _run_fields(start: RunSpec) -> list[msgspec.structs.FieldInfo]:
    """Those that are flags: the preset has one of its own in StartingPoint."""
    return [field for field in msgspec.structs.fields(start) if field.name != "preset"]


def _answer_short_help(arguments: Sequence[str], settings: type[Any], prog: str) -> None:
    if "-h" in arguments:
        print(f"usage: {prog} [FLAGS]\n\n{inspect.getdoc(settings)}\n\n{prog} --help shows every flag, in groups.")
        sys.exit(0)


def _flags_of(settings: type[Any]) -> set[str]:
    return {"--" + field.name.replace("_", "-") for field in dataclasses.fields(settings)}


def _check_names(arguments: Sequence[str], flags: set[str]) -> None:
    """Raises SettingsError where a flag is typed as another library calls it."""
    if sentence := name_here(arguments, flags):
        raise SettingsError(sentence)


def _is_typed(flag: str, arguments: list[str]) -> bool:
    spellings = (flag, flag.replace("--", "--no-", 1))
    return any(argument.partition("=")[0].replace("_", "-") in spellings for argument in arguments)


__all__ = ["Parsed", "StartingPoint", "parse_program", "parse_with_run", "presets", "run_program"]
