"""
`rl-cluster`: a server and workers on this machine, a progress display, and a summary at the end.

The server and the workers are the programs of other machines, which rl-cluster starts by name.
"""

import secrets
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import tyro

from ps_common.errors import PsRlError, ServerUnreachable, SettingsError
from ps_common.program.child_processes import OUTPUT_SECONDS, PipedChild, kill_all
from ps_common.program.flags import Parsed, parse_with_run, typed_flags
from ps_common.program.number_flags import NUMBERS
from ps_common.program.objects import forget_objects, objects_here
from ps_common.program.output import log_as
from ps_common.program.progress_display import ProgressDisplay
from ps_common.program.stop_signals import StopSignal
from ps_common.protocol.names import as_name, is_loopback, split_address
from ps_common.protocol.status import Status, how_it_ended
from ps_common.run_folder.commands import keep_command, what_next
from ps_common.run_folder.output_files import check_output, write_output
from ps_common.run_folder.paths import (
    METRICS,
    REPLAY,
    SERVER_LOG,
    claim_run_folder,
    make_run_folder,
)
from ps_common.run_folder.run_rows import MetricsRow, last_row
from ps_common.settings.overrides import resumed_run
from ps_common.settings.run_files import DEFAULT_PRESET, SETTINGS, load_config
from ps_common.settings.run_settings import flags_for
from ps_common.settings.run_spec import RunSpec
from rl_agent.environments.imports import check_modules
from rl_agent.trial.run_check import custom_settings
from rl_cluster.addresses import check_listening
from rl_cluster.evaluator import Evaluator
from rl_cluster.followers import Followers, followers_of
from rl_cluster.local_cluster import LocalCluster
from rl_cluster.settings import ClusterSettings, WorkersElsewhere
from rl_cluster.trial import check_apart
from rl_cluster.workers import counted, work_elsewhere

PROGRAM = "rl-cluster"
SUMMARY = (
    "global_steps", "updates", "minutes", "episodes", "mean_return_100", "best_mean_return_100", "minutes_to_target",
    "best_evaluation",
    "ending", "staleness_mean",
)  # fmt: skip
NO_RUN_NAMED = f"this is --preset {DEFAULT_PRESET}, since none is named; {PROGRAM} --list shows what else there is"


def train_here(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for what the user can mend."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "--server" in typed_flags(arguments):
        return _train_elsewhere(arguments)
    flags = parse_with_run(ClusterSettings, arguments, prog=PROGRAM, custom_settings=custom_settings)
    if flags.program.list:
        from rl_cluster.catalogue import print_catalogue  # takes a second to load, and nothing else needs it

        print_catalogue()
        return 0
    return _train(flags)


def _train(flags: Parsed[ClusterSettings]) -> int:
    card = _check(flags)
    stop = StopSignal(second=kill_all)
    is_named = flags.names_a_run or flags.program.resume is not None
    print(*filter(None, [flags.remark if is_named else NO_RUN_NAMED]), *card, sep="\n")
    folder, server_flags = prepare(flags)
    if flags.program.resume is None:
        keep_command(folder, PROGRAM)
    with _followers(flags, folder) as followers, Evaluator(folder, flags.run, flags.modules) as evaluator:
        cluster = _start(flags, folder, server_flags, stop.is_set)
        try:
            followers.announce_page(leaving=stop.is_set)
            with ProgressDisplay() as display:
                deaths = _watch(cluster, lambda: [*followers.look(), *evaluator.look()], display, stop)
                status = _last_status(folder)
                display.finish(status)
            followers.ask_to_leave()
        except PsRlError as error:
            cluster.fail(str(error))
            raise
        finally:
            cluster.end()
            forget_objects()
    _report(flags, status, folder, deaths=deaths)
    if status.episodes:  # a plot that fails reports why, and the run has not failed
        plot = PipedChild("ps_ctl", ["plot", str(folder)], lambda line: print(f"# its curve, as it is now: {line}"))
        plot.wait()
        plot.read_rest(within_seconds=OUTPUT_SECONDS)
    return 0


def _followers(flags: Parsed[ClusterSettings], folder: Path) -> Followers:
    """The page and the trackers of the run. Raises SettingsError."""
    return followers_of(
        folder,
        track=flags.program.track,
        web_port=flags.program.web_port if flags.program.web else None,
        report=print,
    )


def _train_elsewhere(arguments: Sequence[str]) -> int:
    """Workers of this machine for a server elsewhere. Returns the exit status. Raises PsRlError."""
    settings, flags = tyro.cli(
        WorkersElsewhere, args=arguments, prog=PROGRAM, return_unknown_args=True, registry=NUMBERS
    )
    name = settings.name or as_name(f"{socket.gethostname()}-{secrets.token_hex(3)}")
    log_as(name)
    return work_elsewhere(settings, name, flags, StopSignal(second=kill_all))


def _check(flags: Parsed[ClusterSettings]) -> list[str]:
    """The lines of the start card. Raises SettingsError for what the run's processes would fail at."""
    settings = flags.program
    check_output("--json", settings.json)
    if settings.resume is not None:
        resumed_run(load_config(settings.resume / SETTINGS), flags.overrides)
    check_listening(settings.host, settings.port)
    source = "--config" if settings.resume is None else f"--resume {settings.resume}"
    check_modules(flags.modules, flags.run, source=source)
    return check_apart(flags.run, imports=settings.imports, hooks=settings.hook, device=settings.device)


def prepare(flags: Parsed[ClusterSettings]) -> tuple[Path, list[str]]:
    """The run folder, with the settings of a new run in it, and the flags that the server gets."""
    settings, run = flags.program, flags.run
    if settings.resume is not None:
        fork = ["--fork"] if settings.fork else []
        return settings.resume, ["--resume", str(settings.resume), *fork, "--new-code", *flags_for(flags.overrides)]
    folder = make_run_folder(settings.run_dir, experiment=run.experiment, preset=run.preset, seed=run.seed)
    claim_run_folder(folder)
    (folder / SETTINGS).write_text(run.to_toml(), encoding="utf-8")
    return folder, ["--config", str(folder / SETTINGS), "--run-dir", str(folder)]


def _start(
    flags: Parsed[ClusterSettings], folder: Path, server_flags: Sequence[str], leaving: Callable[[], bool]
) -> LocalCluster:
    """Start the run's processes; the server listens then."""
    settings, run = flags.program, flags.run
    workers, of_gang = counted(settings.workers, is_gang=settings.gang)
    worker_flags = ["--device", settings.device, "--threads", str(settings.threads), *of_gang]
    worker_flags += ["--replay-folder", str(folder / REPLAY)]
    for flag, values in (("--import", flags.modules), ("--hook", settings.hook)):
        worker_flags += [flag, *values] if values else []
    of_workers = "a worker" if workers == 1 else f"{workers} workers"
    processes = f"a server and {f'a gang of {of_gang[-1]}' if of_gang else of_workers}"
    print(f"{run.preset}: {processes} train {run.environment.id}; run folder: {folder}")
    cluster = LocalCluster(
        folder,
        workers=workers,
        server_flags=server_flags,
        worker_flags=worker_flags,
        stall_seconds=settings.stall_seconds,
        host=settings.host,
        port=settings.port,
        leaving=leaving,
    )
    if cluster.endpoint is not None and not is_loopback(split_address(cluster.endpoint)[0]):
        print(f"workers on other machines can help: rl-worker --server {cluster.endpoint}")
        print("every host that reaches this port can read the weights and push gradients; only ps-server takes keys")
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
                display.print_line(death)
            for note in cluster.take_notes():
                display.print_line(note)
        if status is None:
            return deaths
        display.show(status)


def _report(flags: Parsed[ClusterSettings], status: Status, folder: Path, *, deaths: int) -> None:
    """The run's result as text, and as JSON where `--json` names a file."""
    path = flags.program.json
    if path is not None:
        summary = _summary(status, flags.run) | {"deaths": deaths}
        try:
            write_output("--json", path, msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n")
        except SettingsError as error:
            print(error, file=sys.stderr)
    print(how_it_ended(status))
    if deaths:
        times = "once" if deaths == 1 else f"{deaths} times"
        print(f"its processes died {times}, and were started again; their logs are in {folder}")
    if not objects_here():  # which no command line has
        print(*what_next(status, folder, modules=flags.modules), sep="\n")


def _summary(status: Status, run: RunSpec) -> dict[str, Any]:
    per_second = status.global_steps / max(status.minutes * 60, 1e-9)
    summary = {"preset": run.preset, "seed": run.seed, "steps_per_second": per_second}
    return summary | {name: getattr(status, name) for name in SUMMARY}


def _last_status(folder: Path) -> Status:
    """The last row of the metrics, which the server writes when it exits. Raises PsRlError when there is none."""
    row = last_row(folder / METRICS, MetricsRow)
    if row is None:
        raise PsRlError(f"{folder / METRICS}: the server could write nothing there; see {folder / SERVER_LOG}")
    return row
