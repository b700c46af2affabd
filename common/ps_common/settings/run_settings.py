"""
Settings of a run as names and values: nested in messages and files, flat in overrides, as flags, and as keyword
arguments of Python, which are named as flags are, with underscores.

Here they become a RunSpec, with every name and value checked. run_files.py reads files.
"""

import json
import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import PurePath
from typing import Any

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.names import as_text, is_import_path
from ps_common.settings.custom_algorithm import custom_algorithm
from ps_common.settings.hidden import hidden, hidden_names
from ps_common.settings.kinds import did_you_mean
from ps_common.settings.run_spec import ALGORITHM_SETTINGS, NO_ENVIRONMENT, OPTIMIZER_SETTINGS, Environment, RunSpec
from ps_common.settings.table import TABLE, choices_of, kinds_of

# Settings of release 0.2.0 that are gone, or some of their values, which leave the default: nothing that a run learns
# depends on these values, so its checkpoints and policies are read all the same.
GONE: dict[str, tuple[Any, ...]] = {
    "records.summaries": ("model",),
    "records.summary_every_updates": (),  # any value
    "records.gif_every_episodes": (),
    "wire.checksums": (),
    "algorithm.value_target": ("lambda_return",),
    "algorithm.epsilon_redraw_steps": (0,),
    "environment.box_actions": ("clipped",),
    "environment.decals_and_particles": (True,),
    "environment.start_tic": (0,),
    "environment.lost_game_reward": (None,),
    "network.head_bias": (True,),
    "network.value_hidden": ([], ()),
    "network.lstm_forget_bias": (0.0,),
    "network.same_padding": (False,),
    "optimizer.initial_square": (0.0,),
}
NAMED_SECTIONS: dict[str, Mapping[str, type[Any]]] = {"algorithm": ALGORITHM_SETTINGS, "optimizer": OPTIMIZER_SETTINGS}


def run_from_dict(settings: Mapping[str, Any], *, source: str) -> RunSpec:
    """
    The run specification in nested dictionaries; missing settings, names of sections too, take their defaults.

    Raises SettingsError that names `source` (a file, a flag, a worker) and the setting.
    """
    settings = {section: _with_name(section, value) for section, value in settings.items()}
    algorithm = settings.get("algorithm")
    if isinstance(algorithm, Mapping) and is_import_path(str(algorithm["name"])):
        own = {name: value for name, value in algorithm.items() if name != "name"}
        run = run_from_dict({key: value for key, value in settings.items() if key != "algorithm"}, source=source)
        return msgspec.structs.replace(run, algorithm=custom_algorithm(algorithm["name"], own, source=source))
    settings = _with_reward_clip({section: without_gone(section, value) for section, value in settings.items()})
    try:
        return msgspec.convert(settings, RunSpec)
    except msgspec.ValidationError as error:
        problem, path = problem_and_place(error)
        setting = re.sub(r"\[.*", "", path.strip("."))
        if (takes := kinds_of(setting).takes) and "regex" in problem:
            problem = f"Invalid value: must be {takes}"
        where = f" for {setting} ({flag_of(setting)})" if setting else ""
        choices = choices_of(setting) if problem.startswith("Invalid") else ()
        there_are = f"; there are {', '.join(choices)}" if choices else ""
        raise SettingsError(f"{source}: {problem[:1].lower()}{problem[1:]}{where}{there_are}") from error


def problem_and_place(error: msgspec.ValidationError) -> tuple[str, str]:
    """The sentence, and the path at its end (".records.summaries"; "" at the top); a value may imitate such a path."""
    located = re.fullmatch(r"(.*) - at `\$([^`]*)`", str(error), re.DOTALL)
    return (located[1], located[2]) if located else (str(error), "")


def without_gone(section: str, settings: Any) -> Any:
    """A section as a file or peer has it, without the settings that are gone and change nothing."""
    if not isinstance(settings, Mapping):
        return settings
    return {name: value for name, value in settings.items() if not is_gone(f"{section}.{name}", value)}


def is_gone(setting: str, value: Any) -> bool:
    """Whether it is a setting of an earlier release, with a value that leaves the default."""
    values = GONE.get(setting)
    return values is not None and (not values or value in values)


def _with_name(section: str, settings: Any) -> Any:
    """A section with the name that it has by default, if it has none."""
    if section not in NAMED_SECTIONS or not isinstance(settings, Mapping):
        return settings
    return {"name": getattr(RunSpec(), section).__struct_config__.tag, **settings}


def _with_reward_clip(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """
    Rewards are clipped on ALE games, whose scores differ by powers of ten; elsewhere only if a setting asks for it.
    """
    environment, algorithm = (settings.get(section, {}) for section in ("environment", "algorithm"))
    if not isinstance(environment, Mapping) or not isinstance(algorithm, Mapping) or "reward_clip" in algorithm:
        return settings
    named = environment.get("id", Environment().id)
    if not isinstance(named, str) or named == NO_ENVIRONMENT or Environment(id=named).family == "ale":
        return settings  # the default of the setting
    return {**settings, "algorithm": {**_with_name("algorithm", algorithm), "reward_clip": 0.0}}


def run_for_peers(run: RunSpec) -> dict[str, Any]:
    """
    The run as it is sent, and as checkpoints and exported policies have it: without settings that a release has added
    and that have their default, so that programs of an earlier release read it. Who reads it gives them their default.
    """
    nested = run.to_dict()
    for setting in (name for name, row in TABLE.items() if row.kinds.added):
        section, _, name = setting.rpartition(".")
        place = getattr(run, section) if section else run
        kind: Any = type(place)
        defaults = _defaults_of(kind)
        if name in defaults and getattr(place, name) == defaults[name]:
            (nested.get(section, {}) if section else nested).pop(name, None)
    return nested


@cache
def _defaults_of(section: type[Any]) -> dict[str, Any]:
    """The defaults of a section's settings; to collect them takes a millisecond."""
    fields = msgspec.structs.fields(section)
    return {
        one.name: one.default if one.default_factory is msgspec.NODEFAULT else one.default_factory() for one in fields
    }


def with_settings(run: RunSpec, settings: Mapping[str, Any], *, source: str) -> RunSpec:
    """
    The run with some settings replaced, given flat: {"algorithm.unroll_length": 20}.

    Another algorithm or optimizer ("optimizer.name") starts that section from its defaults. Raises SettingsError.
    """
    nested = run.to_dict()
    if "environment.id" in settings and run.environment.id == NO_ENVIRONMENT:
        nested["algorithm"].pop("reward_clip", None)  # the environment decides, since nobody has chosen a clip
    for key, value in sorted(settings.items(), key=lambda item: not item[0].endswith(".name")):
        section, _, name = key.rpartition(".")
        place = nested.get(section) if section else nested
        if not isinstance(place, dict):
            raise SettingsError(f"{source}: there is no section {section!r}")
        if name == "name" and section in ("algorithm", "optimizer") and place.get("name") != value:
            place.clear()
        place[name] = value
    return run_from_dict(nested, source=source)


def flat_settings(nested: Mapping[str, Any]) -> dict[str, Any]:
    """Nested sections as one flat dictionary: {"algorithm.unroll_length": 20, "seed": 1}."""
    flat: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": inner for name, inner in value.items()}
        else:
            flat[key] = value
    return flat


def flag_of(setting: str) -> str:
    """
    The flag of a setting: "algorithm.unroll_length" is --unroll-length, "environment.id" is --environment,
    "environment.kwargs" is --environment-kwargs.
    """
    section, _, name = setting.rpartition(".")
    of_section = {"id": section, "name": section, "rule": section, "kwargs": f"{section}-kwargs"}
    return "--" + of_section.get(name, name).replace("_", "-")


def flags_for(settings: Mapping[str, Any]) -> list[str]:
    """The flags of these settings, given flat, for the command line of a program."""
    given = {key: json.dumps(value) if isinstance(value, dict) else value for key, value in settings.items()}
    return [word for setting, value in given.items() for word in words_of(flag_of(setting), value)]


def words_of(flag: str, value: Any) -> list[str]:
    """A flag and its value as words of a command line."""
    match value:
        case bool():
            return [flag if value else flag.replace("--", "--no-", 1)]
        case list() | tuple():
            return [flag, *map(str, value)]
        case _:
            return [flag, str(value)]


def keyword_of(setting: str) -> str:
    """The keyword of a setting: "learning_rate" for "schedule.learning_rate", "environment" for "environment.id"."""
    return flag_of(setting).removeprefix("--").replace("-", "_")


def shown_run(run: RunSpec) -> RunSpec:
    """The run without its secrets, for what is made to be passed on."""
    return run_from_dict(hidden(run.to_dict()), source="the run")


def secrets_in(run: RunSpec) -> list[str]:
    """The flags, with the names of arguments, whose values look like secrets."""
    names = hidden_names(flat_settings(run.to_dict()))
    return [" ".join([flag_of(".".join(name.split(".")[:2])), *name.split(".")[2:]]) for name in names]


def keywords_of(run: RunSpec) -> dict[str, Any]:
    """All settings of a run by keyword."""
    return {keyword_of(setting): value for setting, value in flat_settings(run.to_dict()).items()}


def plain(keywords: Mapping[str, Any], *, source: str) -> dict[str, Any]:
    """
    The keywords with values as a file has them: numbers of numpy and torch, arrays, paths and enums become plain ones.

    Raises SettingsError that names `source` and the first keyword whose value is an object of another kind.
    """
    values: dict[str, Any] = {}
    for keyword, value in keywords.items():
        try:
            values[keyword] = msgspec.to_builtins(value, enc_hook=_plain)
        except (NotImplementedError, TypeError) as error:
            raise SettingsError(
                f"{source}: {as_text(keyword)} is {as_text(repr(value))}; a setting is a number, a text or a list of "
                "these, and a custom part a class, a function, or its import path, such as my_env:Env"
            ) from error
    return values


def _plain(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "tolist") and not isinstance(value, type):
        return value.tolist()
    raise NotImplementedError


def with_keywords(
    run: RunSpec, keywords: Mapping[str, Any], *, source: str, others: Collection[str] = ()
) -> tuple[RunSpec, dict[str, Any]]:
    """
    The run with these settings, and the settings alone, flat.

    `algorithm` and `optimizer` decide which other keywords there are; `others` are those that the caller has taken out.
    Raises SettingsError that names `source`.
    """
    keywords = plain(keywords, source=source)
    sections = {f"{section}.name": keywords[section] for section in NAMED_SECTIONS if section in keywords}
    settings = {keyword_of(key): key for key in flat_settings(with_settings(run, sections, source=source).to_dict())}
    for keyword in keywords:
        if keyword not in settings:
            meant = did_you_mean(keyword, [*settings, *others]) or f"there are {', '.join(settings)}"
            raise SettingsError(f"{source}: {as_text(keyword)} is not a setting of this run; {meant.strip()}")
    given = {settings[keyword]: value for keyword, value in keywords.items()}
    changed = with_settings(run, given, source=source)
    flat = flat_settings(changed.to_dict())
    return changed, {key: flat[key] for key in given}
