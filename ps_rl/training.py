"""
`train`: a run on this machine, started from Python.

The run is a process of `rl-cluster`, with the same flags, checks and supervision. It ends with this process. With
`workers=0` it is no process of its own (one_process.py).
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from ps_common.errors import SettingsError
from ps_common.program.flags import Typed, starting_run, typed_flags
from ps_common.program.names_elsewhere import name_here
from ps_common.program.objects import MAIN, have
from ps_common.protocol.names import is_import_path, module_of
from ps_common.run_folder.paths import make_run_folder
from ps_common.settings.run_files import OF_PPO, PPO
from ps_common.settings.run_settings import (
    flag_of,
    flags_for,
    flat_settings,
    plain,
    with_keywords,
    with_settings,
    words_of,
)
from ps_common.settings.run_spec import RunSpec
from ps_rl.custom_objects import path_of
from ps_rl.run import Callback, Run
from rl_agent.trial.run_check import custom_settings
from rl_cluster.settings import ClusterSettings

OF_THE_TERMINAL = {"list", "json", "web", "web_port"}  # flags of rl-cluster that train does not take
FLAGS = get_type_hints(ClusterSettings, include_extras=True)  # of rl-cluster by name, with the kinds of their values
NEEDS_PROCESSES = {"evaluate_every", "gang", "host", "port", "stall_seconds", "track"}
OF_THE_START = ("preset", "config")
SEVERAL = {"wrappers": "wrapper", "hooks": "hook"}  # keywords for flags that take several
PARTS = ("environment", "wrapper", "network", "algorithm", "hook")  # which may be Python objects


def train(preset: str | None = None, *, workers: int = 2, callbacks: Sequence[Callback] = (), **settings: Any) -> Run:
    """
    Start a server and workers on this machine, and return while the run goes on: `train(...).wait()` trains to its end.

        with train("cartpole-a3c", workers=2, seed=1, max_minutes=2) as run:
            for row in run:
                print(row.global_steps, row.mean_return_100)
        print(run.evaluate(episodes=20).mean)

    `settings` are the flags of `rl-cluster` by their names: `environment="CartPole-v1"`, `learning_rate=1e-3`,
    `config="run.toml"`, `resume=folder`, `run_dir=folder`, `imports=["my_games"]`, `device="cuda"`.

    `environment`, `network`, `algorithm` and each of `wrappers` and `hooks` may be a class or a function, a lambda too,
    in place of an import path. The processes of this run get it; workers on other hosts cannot.

    Each of `callbacks` is called with the run and each update since this start, as an iteration yields them, in a
    thread of their own. It may `run.log("name", value)` and `run.stop("why")`. An error in one ends the run, and `wait`
    raises it.

    `workers=0` trains in this process and thread, until the run is over: for breakpoints, and a first look at a custom
    environment. An error of the environment, or a KeyboardInterrupt, is raised as it is, with a note that names the
    folder of the run, which is saved.

    The run ends at its own limit, with `stop`, at the end of a `with` block, by a KeyboardInterrupt in an iteration or
    `wait`, and with this process. A script that ends waits for a run that it has started and then not looked at, by
    `wait`, `watch`, an iteration or `with`; Ctrl-C stops it. Raises SettingsError that names what makes no sense.
    """
    if workers == 0 and (idle := NEEDS_PROCESSES & {name for name, value in settings.items() if value is not None}):
        raise SettingsError(f"train: {min(idle)} has no effect with workers=0, which starts no process; remove it")
    objects: dict[str, Any] = {}
    settings = parts_by_name(settings, objects)
    folder, flags = _start_of(settings | {"preset": preset, "workers": workers or 1})
    run = Run(folder, objects, modules_in(settings))
    if workers == 0:
        from ps_rl.one_process import train_here  # with torch, which no other run needs in this process

        return train_here(run, flags, callbacks)
    return run.started(flags, callbacks)


def _start_of(settings: Mapping[str, Any]) -> tuple[Path, list[str]]:
    """The run folder, and the flags of rl-cluster. Raises SettingsError."""
    settings = plain(settings, source="train")
    program = FLAGS.keys() - OF_THE_TERMINAL
    given = {name: _typed(name, value) for name, value in settings.items() if name in program and value is not None}
    start = {name: settings[name] for name in OF_THE_START if settings.get(name) is not None}
    of_run = {name: value for name, value in settings.items() if name not in {*program, *OF_THE_START}}
    cluster = ClusterSettings(**given)
    spec, changed = _named_run(start | {"resume": cluster.resume}, of_run, source="train")
    folder = cluster.resume or make_run_folder(
        cluster.run_dir, experiment=spec.experiment, preset=spec.preset, seed=spec.seed
    )
    place = {"resume": folder} if cluster.resume else {"run_dir": folder}
    rest = {name: value for name, value in given.items() if name not in ("run_dir", "resume")}
    flags = [*_flags(start | place | rest), "--no-web", *flags_for(changed)]
    return folder.absolute(), flags


def spec_of(settings: Mapping[str, Any], *, source: str) -> RunSpec:
    """The run of these keywords of `train`: settings of the run, `preset` and `config`. Raises SettingsError."""
    settings = plain(settings, source=source)
    start = {name: settings[name] for name in OF_THE_START if name in settings}
    return _named_run(start, {name: value for name, value in settings.items() if name not in start}, source=source)[0]


def _named_run(start: Mapping[str, Any], of_run: Mapping[str, Any], *, source: str) -> tuple[RunSpec, dict[str, Any]]:
    """The run, and what `of_run` changes in the one that `start` names, flat. Raises SettingsError."""
    typed = typed_flags(_flags({**start, **of_run}))
    run, _, _ = starting_run(typed)
    _check_names(typed, run, source)
    run = _with_custom_settings(run, named=of_run.get("algorithm"))
    if of_run.get("algorithm") != PPO:
        return with_keywords(run, of_run, source=source, others=FLAGS)
    of_run = {**of_run, "algorithm": run.algorithm_name}
    run, changed = with_keywords(run, of_run, source=source, others=FLAGS)
    settings = flat_settings(run.to_dict())
    return run, {name: settings[name] for name in OF_PPO} | changed


def parts_by_name(settings: Mapping[str, Any], objects: dict[str, Any]) -> dict[str, Any]:
    """The keywords with import paths for parts that are Python objects; `objects` gets those that have none."""
    settings = {SEVERAL.get(name, name): value for name, value in settings.items()}
    named = settings | {name: _paths(settings[name], objects) for name in PARTS if name in settings}
    have(objects)
    return named


def modules_in(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The modules that these keywords name, with import paths for parts: whoever wrote them has them imported."""
    paths = [path for name in PARTS for path in _several(settings.get(name)) if module_of(path) not in ("", MAIN)]
    return tuple(dict.fromkeys([*_several(settings.get("imports")), *map(module_of, paths)]))


def _several(given: Any) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


def _paths(given: Any, objects: dict[str, Any]) -> Any:
    """The import paths of parts; `objects` gets those that have none."""
    if isinstance(given, list | tuple):
        return [_paths(one, objects) for one in given]
    return path_of(given, objects) if callable(given) else given


def _check_names(typed: Typed, run: RunSpec, source: str) -> None:
    """Raises SettingsError where a keyword has the name that another library gives it."""
    flags = {flag_of(key) for key in flat_settings(run.to_dict())}
    if sentence := name_here(typed, flags | {"--" + name.replace("_", "-") for name in FLAGS}):
        in_python = re.sub(r"--([a-z-]+)", lambda flag: flag[1].replace("-", "_"), sentence)
        raise SettingsError(f"{source}: {in_python}")


def _with_custom_settings(run: RunSpec, *, named: Any) -> RunSpec:
    """The run with all settings of its custom algorithm, if this is `named`: they are keywords."""
    if not is_import_path(str(named)):
        return run
    settings = flat_settings({"algorithm": msgspec.to_builtins(custom_settings(named, {}, ()))})
    return with_settings(run, settings | flat_settings({"algorithm": run.to_dict()["algorithm"]}), source="train")


def _typed(name: str, value: Any) -> Any:
    """The value as ClusterSettings has it. Raises SettingsError that names the keyword."""
    given = [value] if name in ("track", "hook", "imports") and isinstance(value, str) else value
    try:
        return msgspec.convert(given, FLAGS[name], dec_hook=lambda kind, text: kind(text))
    except msgspec.ValidationError as error:
        raise SettingsError(f"train: {name}={value!r}: {error}; rl-cluster --help has what it takes") from error


def _flags(settings: Mapping[str, Any]) -> list[str]:
    """Flags of rl-cluster by the names of their keywords, without those of None."""
    flags: list[str] = []
    for name, value in settings.items():
        flag = "--" + name.replace("_", "-").replace("imports", "import")
        if value is None or (name in FLAGS and value == ()):  # () of a setting of the run may mean something
            continue
        for one in value if name == "track" else [value]:  # that flag is given again for each
            flags += words_of(flag, one)
    return flags
