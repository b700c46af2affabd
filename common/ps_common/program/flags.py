"""
Flags to settings: a program's own settings and the run specification, from one command line.

The run starts from --preset or --config; --algorithm and --optimizer choose whose settings are flags; every setting of
the run is then a flag of its own. The settings whose flags were typed are the user's overrides. -h shows a program's
first flags (its docstring), --help all, in groups.

A command line is split once, into flags and their values, to find where the run starts. tyro then checks all of it.
"""

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec
import tyro

from ps_common.errors import SettingsError
from ps_common.program.names_elsewhere import check_first_word, method_here, name_here
from ps_common.program.number_flags import NUMBERS
from ps_common.program.objects import MAIN
from ps_common.protocol.names import is_import_path, module_of
from ps_common.release import release
from ps_common.settings import run_files
from ps_common.settings.overrides import check_effects
from ps_common.settings.run_settings import NAMED_SECTIONS, flag_of, flat_settings, run_from_dict, with_settings
from ps_common.settings.run_spec import ALGORITHM_SETTINGS, NO_ENVIRONMENT, OPTIMIZER_SETTINGS, RunSpec

S = TypeVar("S")
# The settings of the custom algorithm at an import path, given by name, and those of our methods that the run has
# without it: the struct with their types and defaults.
CustomSettings = Callable[[str, Mapping[str, Any], Sequence[msgspec.Struct]], msgspec.Struct]
Typed = dict[str, list[str]]  # flags, as --like-this, with their values
_NAMES = {"algorithm": (*ALGORITHM_SETTINGS, run_files.PPO), "optimizer": tuple(OPTIMIZER_SETTINGS)}
_ALGORITHMS = tyro.conf.arg(metavar=f"{{{','.join([*_NAMES['algorithm'], 'MODULE:NAME'])}}}")
_INLINE = tyro.conf.arg(name="")
# With a default given, the fields of the chosen algorithm and optimizer become flags instead of subcommands. The
# settings of a section are a group in the help text, and flags without a prefix.
_STYLE = (tyro.conf.AvoidSubcommands, tyro.conf.OmitArgPrefixes)

if TYPE_CHECKING:
    PresetName = str
    AlgorithmName = str
    OptimizerName = str
else:  # choices, for help texts and the completion of shells
    PresetName = tyro.extras.literal_type_from_choices(run_files.presets())
    AlgorithmName = tyro.extras.literal_type_from_choices(_NAMES["algorithm"])
    OptimizerName = tyro.extras.literal_type_from_choices(OPTIMIZER_SETTINGS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartingPoint:
    """Where the run specification starts from."""

    preset: PresetName | None = None
    """named run; rl-cluster --list describes each"""
    config: Path | None = None
    """TOML file with the run's settings"""
    algorithm: Annotated[AlgorithmName | None, _ALGORITHMS] = None
    """method, with its default settings unless the preset uses it too; ppo: a3c as PPO is; MODULE:NAME: one of yours"""
    optimizer: OptimizerName | None = None
    """rule by which the server applies gradients, with its default settings unless the preset uses it too"""


@dataclasses.dataclass(frozen=True)
class Parsed(Generic[S]):
    """
    The settings of one command line.

    `overrides` are the run's settings that the user typed, flat. `remark` is a sentence on a consequence that the user
    did not ask for, or "". `modules` are those that typed flags name: --import, --environment, --wrapper, --network,
    --algorithm. Others are imported for a server only if it is trusted.
    """

    program: S
    run: RunSpec
    overrides: dict[str, Any]
    remark: str = ""
    modules: tuple[str, ...] = ()

    @property
    def names_a_run(self) -> bool:
        """Whether the user named what to train, and not only how."""
        return "preset" in self.overrides or "environment.id" in self.overrides


def parse_program(settings: type[S], argv: Sequence[str] | None, *, prog: str) -> S:
    """The settings of a program that takes no run specification. Exits with usage on bad flags."""
    arguments, typed = _begun(settings, argv, prog)
    _check_names(typed, _flags_of(settings))
    return tyro.cli(settings, args=arguments, prog=prog, config=_STYLE, registry=NUMBERS)


def parse_with_run(
    settings: type[S], argv: Sequence[str] | None, *, prog: str, custom_settings: CustomSettings | None = None
) -> Parsed[S]:
    """
    A program's settings and the run specification. Exits with usage on bad flags.

    `custom_settings` imports a user's custom algorithm that the command line names; without it the settings that a file
    gives are flags, of the types that their values have. Raises SettingsError when a preset, a file or a value makes
    no sense.
    """
    arguments, typed = _begun(settings, argv, prog)
    check_first_word(arguments)
    start, overrides, remark = starting_run(typed)
    custom = _custom_algorithm(start, typed, custom_settings)
    others = _flags_of(settings) | _flags_of(StartingPoint)
    _check_names(typed, _run_flags(start, custom, others) | others)
    kind = _flags_class(settings, start, custom)
    defaults = f"The defaults are those of {start.preset}: --preset NAME --help shows NAME's."
    about = f"{inspect.getdoc(settings)}\n\n{defaults}"
    flags: Any = tyro.cli(kind, args=arguments, prog=prog, description=about, config=_STYLE, registry=NUMBERS)
    nested = {"preset": start.preset} | {
        field.name: msgspec.to_builtins(getattr(flags, field.name)) for field in _run_fields(start)
    }
    if custom is not None:
        nested["algorithm"] |= {"name": start.algorithm_name}
    run = run_from_dict(nested, source="flags")  # tyro checks types; ranges are checked here
    of_the_run = _typed_settings(typed, nested)
    named = [module_of(part) for part in run.parts if any(part in values for values in typed.values())]
    modules = tuple(dict.fromkeys([*typed.get("--import", ()), *(name for name in named if name != MAIN)]))
    parsed = Parsed(flags.program, run, overrides | of_the_run, remark, modules)
    if parsed.names_a_run:
        check_effects(run, of_the_run)
    return parsed


def typed_flags(arguments: Sequence[str]) -> Typed:
    """The flags of a command line with their values; of a flag that is typed twice the last."""
    typed: Typed = {}
    values: list[str] = []  # what stands before the first flag belongs to none
    for argument in arguments:
        if argument.startswith("--") or argument == "-h":
            name, has_value, value = argument.partition("=")
            values = typed[name.replace("_", "-")] = [value] if has_value else []
        else:
            values.append(argument)
    return typed


def print_version(arguments: Sequence[str], prog: str) -> None:
    """Exits with the version if --version is typed."""
    if "--version" in arguments:
        print(f"{prog} {release()}")
        sys.exit(0)


def starting_run(typed: Typed) -> tuple[RunSpec, dict[str, Any], str]:
    """The run before its flags, the overrides of --preset, --config, --algorithm and --optimizer, and a remark."""
    named: dict[str, str] = {}
    for section in NAMED_SECTIONS:
        name, choices = _value(typed, f"--{section}"), _NAMES[section]
        if name is None:
            continue
        if name not in choices and not (section == "algorithm" and is_import_path(name)):
            no_such = f"--{section} {name}: no such {section}{method_here(name)}"
            raise SettingsError(f"{no_such}; there are {', '.join(choices)}")
        named[section] = name
    run, overrides, remark = _named_run(typed)
    for section, name in named.items():
        is_ppo = (section, name) == ("algorithm", run_files.PPO)
        chosen = run_files.IS_PPO if is_ppo else {f"{section}.name": name}
        run = run_files.as_ppo(run) if is_ppo else with_settings(run, chosen, source=f"--{section}")
        overrides |= chosen
    # Every setting of a file is an override, without those of an algorithm or optimizer that was replaced above.
    return run, flat_settings(run.to_dict()) if "--config" in typed else overrides, remark


def _named_run(typed: Typed) -> tuple[RunSpec, dict[str, Any], str]:
    """The run, overrides and remark of --preset, --config, --resume and --environment alone."""
    preset, config, resume = (_value(typed, flag) for flag in ("--preset", "--config", "--resume"))
    environment = _value(typed, "--environment")
    if preset is not None and config is not None:
        raise SettingsError("--preset and --config both name a run; give one of them")
    if preset is not None or config is not None:
        run = run_files.load_config(Path(config)) if config is not None else run_files.load_preset(preset or "")
        if environment is not None:
            source = f"--preset {preset}" if config is None else f"--config {config}"
            overrides = [key for key in flat_settings(run.to_dict()) if _is_typed(key, typed)]
            run = run_files.on_another_game(run, environment, overrides, source=source)
        return run, {} if preset is None else {"preset": run.preset}, ""
    if resume is not None and (kept := Path(resume) / run_files.SETTINGS).exists():
        return run_files.load_config(kept), {}, ""  # overrides are the other flags
    if environment is not None:
        if environment == NO_ENVIRONMENT:
            return RunSpec(), {}, ""
        run = run_files.recipe_for(environment, algorithm=_value(typed, "--algorithm"), lstm=_value(typed, "--lstm"))
        return run, {}, run_files.recipe_in_words(environment)
    return run_files.load_preset(run_files.DEFAULT_PRESET), {}, ""


def _custom_algorithm(start: RunSpec, typed: Typed, custom_settings: CustomSettings | None) -> msgspec.Struct | None:
    """The settings of the starting run's custom algorithm, with types and defaults; None if nobody may import it."""
    given = start.to_dict()["algorithm"]
    path = given.pop("name")
    is_named = path in typed.get("--algorithm", ()) or module_of(path) in typed.get("--import", ())
    if custom_settings is None or not is_import_path(path) or not is_named:
        return None
    return custom_settings(path, given, _without_custom(typed))


def _without_custom(typed: Typed) -> list[msgspec.Struct]:
    """The settings of our methods in the same run, which a subclass of one of them starts from."""
    environment = _value(typed, "--environment")
    if environment is None or any(flag in typed for flag in ("--preset", "--config", "--resume")):
        return [_named_run(typed)[0].algorithm]
    lstm = _value(typed, "--lstm")
    return [run_files.recipe_for(environment, algorithm=name, lstm=lstm).algorithm for name in ALGORITHM_SETTINGS]


def _run_flags(start: RunSpec, custom: msgspec.Struct | None, others: set[str]) -> set[str]:
    """
    The flags of the run's settings. Raises SettingsError if a custom algorithm's setting has the name of another flag.
    """
    nested = start.to_dict()
    of_run = {flag_of(key) for key in flat_settings({**nested, "algorithm": {"name": ""}})}
    algorithm = [name for name in nested["algorithm"] if name != "name"] if custom is None else custom.__struct_fields__
    of_algorithm = {"--" + name.replace("_", "-") for name in algorithm}
    if is_import_path(nested["algorithm"]["name"]) and (taken := sorted(of_algorithm & (of_run | others | {"--name"}))):
        path = nested["algorithm"]["name"]
        raise SettingsError(f"--algorithm {path}: its setting {taken[0]} is a flag already; give it another name")
    return of_run | of_algorithm


def _flags_class(settings: type[Any], start: RunSpec, custom: msgspec.Struct | None) -> type[Any]:
    """
    The class that tyro fills: the program's settings, the starting point, and each section of the run as a group.

    Algorithm and optimizer have the types of the starting run's, whose settings are flags; `custom` are those of a
    custom algorithm.
    """
    point: type[Any] = StartingPoint
    if is_import_path(start.algorithm_name):  # of the user, which no choice of tyro's names
        algorithm = ("algorithm", Annotated[str | None, _ALGORITHMS], None)
        point = dataclasses.make_dataclass("CustomStart", [algorithm], bases=(point,), frozen=True, kw_only=True)
    flags: list[Any] = [
        ("program", Annotated[settings, _INLINE]),
        ("start", Annotated[point, _INLINE], point()),
    ]
    for field in _run_fields(start):
        default = custom if custom is not None and field.name == "algorithm" else getattr(start, field.name)
        kind = type(default) if isinstance(default, msgspec.Struct) else field.type
        flags.append((field.name, kind, default))
    return dataclasses.make_dataclass("Flags", flags)


def _run_fields(start: RunSpec) -> list[msgspec.structs.FieldInfo]:
    """The run's fields that are flags; --preset is one of StartingPoint."""
    return [field for field in msgspec.structs.fields(start) if field.name != "preset"]


def _typed_settings(typed: Typed, nested: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of the run whose flags were typed, flat; those of StartingPoint are overrides already."""
    return {
        key: value
        for key, value in flat_settings(nested).items()
        if (not key.endswith(".name") or key == "network.name") and _is_typed(key, typed)
    }


def _is_typed(setting: str, typed: Typed) -> bool:
    flag = flag_of(setting)
    return flag in typed or flag.replace("--", "--no-", 1) in typed


def _value(typed: Typed, flag: str) -> str | None:
    """The value of a flag that takes one; None if it is not typed. Raises SettingsError."""
    if flag not in typed:
        return None
    if not typed[flag]:
        raise SettingsError(f"{flag}: expected one argument")
    return typed[flag][0]


def _begun(settings: type[Any], argv: Sequence[str] | None, prog: str) -> tuple[list[str], Typed]:
    """A command line, and the same split. Exits with the version or the first flags if these are asked for."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    typed = typed_flags(arguments)
    print_version(arguments, prog)
    if "-h" in typed:
        print(f"usage: {prog} [FLAGS]\n\n{inspect.getdoc(settings)}\n\n{prog} --help shows every flag, in groups.")
        sys.exit(0)
    return arguments, typed


def _flags_of(settings: type[Any]) -> set[str]:
    return {"--" + field.name.replace("_", "-") for field in dataclasses.fields(settings)}


def _check_names(typed: Typed, flags: set[str]) -> None:
    """Raises SettingsError where a flag is typed by the name that another library gives it."""
    if sentence := name_here(typed, flags):
        raise SettingsError(sentence)
