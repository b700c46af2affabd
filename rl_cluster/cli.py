"""
`rl-cluster`: a server and workers on this machine, a progress display, and a summary at the end.

The server and the workers are the programs of other machines, which rl-cluster starts by name.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec
from tyro.conf import UseAppendAction, arg

from ps_common.errors import PsRlError, ServerUnreachable, SettingsError
from ps_common.program.child_processes import PS_CTL, command_of, kill_all
from ps_common.program.cores import usable_cores
from ps_common.program.flags import Parsed, parse_with_run
from ps_common.program.number_flags import Port, Seconds, Workers, check_numbers
from ps_common.program.output import never_wait_for_output
from ps_common.program.output_file import check_output
from ps_common.program.progress_display import ProgressDisplay
from ps_common.program.run_program import run_program
from ps_common.program.stop_signals import StopSignal
from ps_common.protocol.addresses import EVERY_INTERFACE, bare_host, is_loopback, split_address
from ps_common.protocol.shards import MOST_SHARDS
from ps_common.protocol.status import Status, how_it_ended
from ps_common.run_folder.followers import Followers, TrackerName, check_trackers, followers_of
from ps_common.run_folder.jsonl import last_row
from ps_common.run_folder.object_store import check_folder
from ps_common.run_folder.paths import (
    METRICS,
    SERVER_LOG,
    SETTINGS,
    check_whole_run,
    claim_run_folder,
    make_run_folder,
    shard_folder,
    shards_in,
)
from ps_common.run_folder.run_rows import MetricsRow
from ps_common.settings.overrides import resumed_run
from ps_common.settings.run_files import DEFAULT_PRESET, load_config
from ps_common.settings.run_settings import flags_for
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.imports import check_modules
from rl_agent.trial.run_check import check_apart, check_listening, own_settings, shard_addresses
from rl_cluster.game_gifs import GameGifs
from rl_cluster.hooks.cli import checkpoint_hooks
from rl_cluster.local_cluster import LocalCluster
from rl_cluster.run_ending import what_next

PROGRAM = "rl-cluster"
NO_RUN_NAMED = f"this is --preset {DEFAULT_PRESET}, since none is named; {PROGRAM} --list shows what else there is"


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """
    Train on this machine: a server and workers, progress to watch, an end at the first limit reached.

    The flags that matter first:
      --list             the presets and environments that there are; trains nothing
      --preset NAME      a run that is known to learn: game, method, settings, target
      --environment ID   a game of your choice, with settings for every environment
      --algorithm NAME   a3c, n_step_q, one_step_q or one_step_sarsa
      --workers N        worker processes; one for each CPU when not given
      --max-minutes M    end after so many minutes; --max-steps N after so many environment steps
      --until-return R   end when the last 100 games have this mean
      --resume RUN_DIR   go on with a run; other flags change its settings
      --seed N           of weights, environments and sampling
      --experiment NAME  runs of one experiment share a folder, and a curve in plots
    """

    list: bool = False
    """print the presets and environments that there are; trains nothing"""
    workers: Workers | Literal["auto"] = "auto"
    """worker processes; auto: one for each CPU"""
    run_dir: Path | None = None
    """run folder: logs, metrics, checkpoints; runs/EXPERIMENT/PRESET-DATE-seedN when not given"""
    resume: Path | None = None
    """continue the run in this folder from its newest sound checkpoint; other flags change its settings, but not what
    it was begun with: preset, seed, environment, network, algorithm and optimizer"""
    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 is every interface: workers on other machines can help"""
    port: Port = 0
    """TCP port to listen on, and those after it for further shards; 0: free ones"""
    shards: Annotated[int, msgspec.Meta(ge=1, le=MOST_SHARDS)] | None = None
    """servers that hold the weights, a range each; 1, or as many as the resumed run had, when not given"""
    web: bool = True
    """show the run in a browser: its address is among the first lines"""
    web_port: Port = 0
    """port of that page, on the loopback interface; 0: a free one"""
    track: Annotated[tuple[TrackerName, ...], UseAppendAction] = ()
    """experiment tracker that the run is sent to, an extra of the same name; may be given again for another"""
    hook: tuple[str, ...] = ()
    """MODULE:NAME of hooks of yours: on_episode is called in each worker, on_checkpoint in a process of its own"""
    imports: Annotated[tuple[str, ...], arg(name="import")] = ()
    """modules that workers may import: they register environments, or have parts that a --config names"""
    device: Literal["cpu", "cuda"] = "cpu"
    """where the workers' networks run"""
    stall_seconds: Seconds = 60.0
    """a worker is replaced when its environments make no step for so long, and for ten times their longest step so far;
    raise it where a step may take minutes"""
    json: Path | None = None
    """file for one JSON object that sums the run up"""

    def __post_init__(self) -> None:
        check_numbers(self)
        if (self.shards or 1) > 1 and bare_host(self.host) in EVERY_INTERFACE:
            raise SettingsError(f"--shards and --host {self.host}: workers need an address of each shard; name one")
        check_trackers(self.track)
        check_folder("--run-dir", self.run_dir)
        check_folder("--resume", self.resume)
        if self.resume is not None:
            if self.run_dir is not None:
                raise SettingsError("--resume and --run-dir both name the run folder; give one of them")
            check_whole_run(self.resume, flag=f"--resume {self.resume}")
            if not (self.resume / SETTINGS).is_file():
                raise SettingsError(f"--resume {self.resume}: no run folder: there is no {SETTINGS} in it")


def main() -> NoReturn:
    run_program(train_here, PROGRAM)


def train_here(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for what the user can mend."""
    never_wait_for_output()
    flags = parse_with_run(ClusterSettings, argv, prog=PROGRAM, own_settings=own_settings)
    if flags.program.list:
        from rl_cluster.catalogue import print_catalogue  # takes a second to load, and nothing else needs it

        print_catalogue()
        return 0
    card = _check(flags)
    stop = StopSignal(second=kill_all)
    is_named = flags.names_a_run or flags.program.resume is not None
    print(*filter(None, [flags.remark if is_named else NO_RUN_NAMED]), *card, sep="\n")
    folder, server_flags = _prepare(flags)
    shards = flags.program.shards or shards_in(folder)
    shown = shard_folder(folder, 1, shards)
    shown.mkdir(exist_ok=True)
    every, modules = flags.run.records.gif_every_episodes, _named_modules(flags)
    with _followers(flags, shown) as followers, GameGifs(folder, every, shards, modules, stop.is_set) as gifs:
        cluster = _start(flags, folder, server_flags, shards, stop.is_set)
        try:
            followers.announce_page(leaving=stop.is_set)
            with ProgressDisplay() as display:
                deaths = _watch(cluster, lambda: [*followers.look(), *gifs.look()], display, stop)
                status = _last_status(shown)
                display.finish(status)
            followers.ask_to_leave()
        finally:
            cluster.end()
    _report(flags, status, folder, deaths=deaths)
    if status.episodes:  # a plot that fails says why itself, and the run has not failed
        subprocess.run(command_of(PS_CTL, ["plot", str(folder)]), check=False)
    return 0


def _followers(flags: Parsed[ClusterSettings], folder: Path) -> Followers:
    """The page, trackers and hooks of the run. Raises SettingsError."""
    return followers_of(
        folder,
        track=flags.program.track,
        web_port=flags.program.web_port if flags.program.web else None,
        others=checkpoint_hooks(folder, flags.program.hook),
        report=print,
    )


def _check(flags: Parsed[ClusterSettings]) -> list[str]:
    """The lines of the start card. Raises SettingsError for what the run's processes would fail at."""
    settings = flags.program
    check_output("--json", settings.json)
    if settings.resume is not None:
        resumed_run(load_config(settings.resume / SETTINGS), flags.overrides)
    check_listening(settings.host, settings.port)
    source = "--config" if settings.resume is None else f"--resume {settings.resume}"
    check_modules(_named_modules(flags), flags.run, source=source)
    return check_apart(flags.run, imports=settings.imports, hooks=settings.hook, device=settings.device)


def _named_modules(flags: Parsed[ClusterSettings]) -> list[str]:
    """The modules that the command line names. Workers may import these, and no others."""
    return list(dict.fromkeys([*flags.program.imports, *flags.modules]))


def _prepare(flags: Parsed[ClusterSettings]) -> tuple[Path, list[str]]:
    """The run folder, with the settings of a new run in it, and the flags that the server gets."""
    settings, run = flags.program, flags.run
    if settings.resume is not None:
        return settings.resume, ["--resume", str(settings.resume), "--new-code", *flags_for(flags.overrides)]
    folder = make_run_folder(settings.run_dir, experiment=run.experiment, preset=run.preset, seed=run.seed)
    claim_run_folder(folder)
    (folder / SETTINGS).write_text(run.to_toml(), encoding="utf-8")
    return folder, ["--config", str(folder / SETTINGS), "--run-dir", str(folder)]


def _start(
    flags: Parsed[ClusterSettings], folder: Path, server_flags: Sequence[str], shards: int, leaving: Callable[[], bool]
) -> LocalCluster:
    """Start the run's processes; the server listens then."""
    settings, run = flags.program, flags.run
    workers = usable_cores() if settings.workers == "auto" else settings.workers
    worker_flags = ["--device", settings.device]
    for flag, values in (("--import", _named_modules(flags)), ("--hook", settings.hook)):
        worker_flags += [flag, *values] if values else []
    servers = "a server" if shards == 1 else f"{shards} shards"
    processes = f"{servers} and {'a worker' if workers == 1 else f'{workers} workers'}"
    print(f"{run.preset}: {processes} train {run.environment.id}; run folder: {folder}")
    cluster = LocalCluster(
        folder,
        workers=workers,
        server_flags=server_flags,
        worker_flags=worker_flags,
        stall_seconds=settings.stall_seconds,
        host=settings.host,
        port=settings.port,
        shards=shard_addresses(settings.host, settings.port, shards) if shards > 1 else (),
        leaving=leaving,
    )
    if cluster.endpoint is not None and not is_loopback(split_address(cluster.endpoint)[0]):
        print(f"workers on other machines can help: rl-worker --server {cluster.endpoint}")
        print("every host that reaches this port can read the weights and push gradients; ps-server alone takes keys")
    return cluster


def _watch(cluster: LocalCluster, look: Callable[[], list[str]], display: ProgressDisplay, stop: StopSignal) -> int:
    """Show progress, and the lines of `look`, until the run has ended. Returns how many processes died."""
    is_stopping, deaths = False, 0
    while True:
        if stop.is_set() and not is_stopping:
            is_stopping = True
            cluster.stop("rl-cluster was interrupted")
        for line in look():
            display.print_line(line)
        try:
            status = cluster.poll()
        except ServerUnreachable:
            continue  # it was killed or is about to exit: the next poll finds out which
        finally:
            for death in cluster.take_deaths():
                deaths += 1
                display.print_line(str(death))
        if status is None:
            return deaths
        display.show(status)


def _report(flags: Parsed[ClusterSettings], status: Status, folder: Path, *, deaths: int) -> None:
    """The run's result as text, and as JSON where `--json` names a file."""
    path = flags.program.json
    if path is not None:
        summary = _summary(status, flags.run) | {"deaths": deaths}
        try:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
        except OSError as error:
            print(f"--json {path}: cannot be written: {error.strerror}", file=sys.stderr)
    print(how_it_ended(status))
    if deaths:
        times = "once" if deaths == 1 else f"{deaths} times"
        print(f"its processes died {times}, and were started again; their logs are in {folder}")
    print(*what_next(status, folder, modules=_named_modules(flags)), sep="\n")


def _summary(status: Status, run: RunSpec) -> dict[str, Any]:
    return {
        "preset": run.preset,
        "seed": run.seed,
        "global_steps": status.global_steps,
        "updates": status.updates,
        "minutes": status.minutes,
        "steps_per_second": status.global_steps / max(status.minutes * 60, 1e-9),
        "episodes": status.episodes,
        "mean_return_100": status.mean_return_100,
        "best_mean_return_100": status.best_mean_return_100,
        "minutes_to_target": status.minutes_to_target,
        "ending": status.ending,
        "staleness_mean": status.staleness_mean,
    }


def _last_status(folder: Path) -> Status:
    """The last row of the metrics, which the server writes when it exits. Raises PsRlError when there is none."""
    try:
        row = last_row(folder / METRICS, MetricsRow)
    except OSError as error:
        raise PsRlError(f"{folder / METRICS}: cannot be read: {error.strerror}") from error
    if row is None:
        raise PsRlError(f"{folder / METRICS}: the server could write nothing there; see {folder / SERVER_LOG}")
    return row
