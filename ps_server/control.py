"""`ps-ctl`: show the status of a running server, let it save or stop, make keys, and plot learning curves."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text
from tyro.conf import arg
from tyro.extras import SubcommandApp

from common.errors import SettingsError
from common.program.flags import print_version, typed_flags
from common.program.run_program import run_program
from common.protocol import messages
from common.protocol.addresses import check_address
from common.protocol.messages import ToServer, ToWorker
from common.protocol.status import Status, speed_of
from common.run_folder.paths import CURVE
from common.sockets.curve import CurveFlags
from common.sockets.request import ask
from ps_server.shell.keys import add_keys, make_keys

PROGRAM = "ps-ctl"
REPLY_SECONDS = 10.0
SAVE_SECONDS = 60.0  # until a checkpoint is on disk
PIPE_WIDTH = 200  # characters; enough for the longest worker id, which a terminal may cut off

app = SubcommandApp()


def main() -> NoReturn:
    run_program(control, PROGRAM)


def control(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for errors that the user can fix."""
    print_version(typed_flags(sys.argv[1:] if argv is None else argv), PROGRAM)
    app.cli(args=argv, prog=PROGRAM, description=__doc__)
    return 0


@dataclass(frozen=True, kw_only=True)
class Server(CurveFlags):
    """The flags that name a server."""

    server: str
    """HOST:PORT of the ps-server"""

    def __post_init__(self) -> None:
        check_address("--server", self.server)


Asked = Annotated[Server, arg(name="")]  # its flags have no prefix


@app.command
def status(*, server: Asked, json: bool = False) -> None:
    """
    Show the status of the run and of its workers.

    Args:
        json: print one JSON object instead of text
    """
    reply = _ask(server, messages.StatusRequest(request=1), REPLY_SECONDS)
    assert isinstance(reply, messages.StatusReply)
    if json:
        _print_json(reply.status)
    else:
        _print_status(reply.status)


@app.command
def checkpoint(*, server: Asked, json: bool = False) -> None:
    """
    Write a checkpoint now, and wait until it is on disk.

    Args:
        json: print one JSON object instead of text
    """
    reply = _ask(server, messages.CheckpointRequest(request=1), SAVE_SECONDS)
    assert isinstance(reply, messages.CheckpointSaved)
    if json:
        _print_json(reply)
    else:
        print(f"version {reply.version} saved as {reply.path}")


@app.command
def stop(*, server: Asked, json: bool = False) -> None:
    """
    End the run: workers leave, the server saves, all programs exit.

    Args:
        json: print one JSON object instead of text
    """
    reply = _ask(server, messages.StopRequest(request=1), REPLY_SECONDS)
    if json:
        _print_json(reply)
    else:
        print("the run is ending: workers leave, the server saves and exits")


@app.command
def keygen(folder: Path, /, *, name: str | None = None, admin: bool = False) -> None:
    """
    Make the keys of a locked server in FOLDER: one pair for the server, one for its workers, one for an admin.

    The server reads FOLDER/authorized: every public key in it may connect. Remove a file to withdraw that right.

    Args:
        folder: folder for the keys
        name: add one more pair, of this name, to a folder that has keys
        admin: with --name: this pair may also save and stop the run
    """
    for path in make_keys(folder) if name is None else [add_keys(folder, name, admin=admin)]:
        print(path)


@app.command
def plot(runs: tuple[Path, ...], /, *, out: Path | None = None) -> None:
    """
    Plot learning curves as a PNG: the mean return of the last 100 episodes against steps, minutes and episodes.

    Runs that differ only in their seed are drawn as their mean and a band from the lowest to the highest, up to the end
    of the shortest, and each as a thin line. The legend names the settings in which the other runs differ.

    Args:
        runs: run folders, or folders that contain run folders
        out: file for the plot; curve.png in the first folder when not given
    """
    if not runs:
        raise SettingsError("plot: name the run folders to draw")
    from ps_server.records.plots import (
        plot_runs,  # here, because matplotlib takes a second to load and the other commands do without it
    )

    print(plot_runs(runs, out or runs[0] / CURVE))


def _ask(server: Server, message: ToServer, timeout_seconds: float) -> ToWorker:
    keys = server.client_keys()
    return ask(server.server, message, timeout_seconds=timeout_seconds, keys=keys)[0]


def _print_json(value: msgspec.Struct) -> None:
    print(msgspec.json.encode(value).decode())


def _print_status(status: Status) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    console.print(_text_of(status))
    console.print(_workers_of(status))


def _text_of(status: Status) -> Text:
    """The run in words. Text, not markup: the names of workers and presets come from peers."""
    scores = (status.mean_return_100, status.best_mean_return_100, status.until_return)
    returns, best, target = ("-" if score is None else f"{score:.2f}" for score in scores)
    text = Text(status.preset or "undecided", style="bold")
    text.append(
        f"{status.environment and ' on '}{status.environment} is {status.phase}, version {status.version}, "
        f"{status.parameters} parameters, {status.minutes:.1f} minutes\n"
        f"T {status.global_steps}   {status.steps_per_second:.0f} steps/s   "
        f"{status.updates_per_second:.1f} updates/s   learning rate {status.learning_rate:.3g}\n"
        f"{status.episodes} episodes   mean return of the last 100: {returns}   best: {best}   target: {target}\n"
        f"staleness {status.staleness_recent:.2f} now, {status.staleness_mean:.2f} over the run   "
        f"gradient norm {status.gradient_norm:.3g}\n"
        f"run {status.run_id or '-'}   checkpoint at version {status.checkpoint_version}, "
        f"{status.checkpoint_failures} failed   duplicates {status.duplicates}   refused {dict(status.refused) or 0}",
        style="not bold",
    )
    if (standby := status.standby) is not None:
        text.append(
            f"\nstandby {standby.address} is {standby.phase}, {standby.lag_updates} updates "
            f"({standby.lag_bytes / 2**20:.1f} MiB, {standby.lag_seconds:.1f} s) behind; dropped {standby.drops} times",
            style="not bold",
        )
    return text


def _workers_of(status: Status) -> Table:
    columns = ("worker", "no.", "envs", "alive", "silent s", "pushes", "refused", "steps", "stale", "steps/s")
    table = Table(*columns, box=SIMPLE_HEAD)
    for worker in status.workers:
        table.add_row(
            Text(worker.worker_id),
            str(worker.number),
            str(worker.environments),
            "stalled" if worker.stalled else "yes" if worker.alive else "no",
            f"{worker.silent_seconds:.1f}",
            str(worker.pushes),
            str(sum(worker.refused.values())),
            str(worker.steps),
            f"{worker.staleness:.2f}",
            f"{speed_of(worker):.0f}",
        )
    return table
