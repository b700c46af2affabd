"""
`ps-ctl`: watch and steer a running server, let it save or stop, plot what it has learned, and make keys.

  ps-ctl top --server HOST:5555                          watch a run, as rl-cluster shows it
  ps-ctl status --server HOST:5555 --json                its state, for programs
  ps-ctl set learning_rate=1e-4 --server HOST:5555       change a setting; also pause and resume
  ps-ctl drain --server HOST:5555                        have the workers leave, and save
  ps-ctl promote --server HOST:5555 --reason WHY         have a standby serve the run of a dead primary
  ps-ctl stop --server HOST:5555                         end the run
  ps-ctl plot RUN_DIR                                    draw its learning curve
  ps-ctl reshard RUN_DIR --shards 4                      cut an ended run into another number of shards
  ps-ctl keygen keys                                     make the keys of a locked server
"""

import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import msgspec
from tyro.conf import arg
from tyro.extras import SubcommandApp

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.flags import print_version
from ps_common.program.names_elsewhere import NAMES_ELSEWHERE
from ps_common.program.number_flags import NUMBERS
from ps_common.program.output import reader_has_left
from ps_common.program.progress_display import ProgressDisplay
from ps_common.protocol import messages
from ps_common.protocol.messages import Event, Stop, Subscribed, ToServer, ToWorker
from ps_common.protocol.names import as_text
from ps_common.protocol.status import Status
from ps_common.run_folder.endpoint_file import address_of
from ps_common.settings.adjustable import DRAINED, PAUSED, settings_in
from ps_common.settings.kinds import text_of
from ps_common.sockets.curve import CurveFlags
from ps_common.sockets.request import ask_run
from ps_common.sockets.subscription import subscription
from ps_ctl.folder_commands import keygen, plot, reshard
from ps_ctl.status_text import change_in, line_of, print_status

PROGRAM = "ps-ctl"
REPLY_SECONDS = 10.0
SAVE_SECONDS = 60.0  # until a checkpoint is on disk
DRAIN_SECONDS = 120.0  # for workers to end their unrolls and leave
POLL_SECONDS = 0.2

app = SubcommandApp()


def control(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError for errors that the user can fix."""
    print_version(sys.argv[1:] if argv is None else argv, PROGRAM)
    app.cli(args=argv, prog=PROGRAM, description=__doc__, registry=NUMBERS)
    return 0


@dataclass(frozen=True, kw_only=True)
class Server(CurveFlags):
    """The flags that name a server."""

    server: str
    """HOST:PORT of the ps-server, or the folder of its run"""

    @cached_property
    def address(self) -> str:
        """HOST:PORT. Raises SettingsError."""
        return address_of("--server", self.server)


@dataclass(frozen=True, kw_only=True)
class AskedServer(Server):
    """The flags of a command that prints a reply of the server."""

    json: bool = False
    """print one JSON object instead of text"""


Watched = Annotated[Server, arg(name="")]  # their flags have no prefix
Asked = Annotated[AskedServer, arg(name="")]


@app.command
def status(*, server: Asked) -> None:
    """Show the status of the run and of its workers."""
    reply = _status(server)
    if server.json:
        print(_json(reply.status))
    else:
        print_status(reply.status, start_from=str(reply.run.get("start_from", "")))


@app.command
def top(*, server: Watched) -> None:
    """
    Watch the run: curve, numbers, workers and events, as rl-cluster shows them. Ctrl-C ends.

    It goes on by itself after the server was restarted. In a pipe it prints a line every ten seconds.
    """
    status: Status | None = None
    with ProgressDisplay() as display:
        try:
            for message in subscription(server.address, keys=server.client_keys()):
                match message:
                    case messages.StatusUpdate():
                        status = message.status
                        display.show(status)
                    case Event(kind="checkpoint"):
                        pass
                    case Event():
                        display.print_line(line_of(message))
                if reader_has_left() or (isinstance(message, Event) and message.kind == "end"):
                    break
        except KeyboardInterrupt:
            pass
        if status is not None:
            display.finish(status)


@app.command
def events(*, server: Asked, follow: bool = True) -> None:
    """
    Print the newest events of the run, then each as it happens, until the run ends.

    Args:
        follow: go on after the events so far; --no-follow ends there
    """
    newest: int | None = None
    for message in subscription(server.address, keys=server.client_keys()):
        if isinstance(message, Subscribed) and newest is None:
            newest = message.event
        if isinstance(message, Event):
            missed = f"({message.missed} events before this one are missing)\n" if message.missed else ""
            print(_json(message) if server.json else f"{missed}{line_of(message)}", flush=True)
        number = message.number if isinstance(message, Event) else 0
        is_last = not follow and newest is not None and number >= newest
        if is_last or reader_has_left() or (isinstance(message, Event) and message.kind == "end"):
            return


@app.command(name="set")
def set_(settings: tuple[str, ...], /, *, server: Asked) -> None:
    """
    Change settings while the run runs: all of those given, or none.

      ps-ctl set learning_rate=1e-4 --server HOST:5555
      ps-ctl set max_minutes=0 until_return=20 --server HOST:5555

    The change is part of the run: checkpoints, the standby and ps-server --resume keep it. A learning rate or entropy
    weight holds from now on, and its schedule continues from there.

    Args:
        settings: SETTING=VALUE: learning_rate, entropy_weight, final_epsilon, max_steps, max_minutes, until_return (or
            none), checkpoint_seconds, paused and drained (true or false)
    """
    if not settings:
        raise SettingsError("set: name what to change, such as learning_rate=1e-4")
    flags = [f"--{text.partition('=')[0].strip().replace('_', '-')}" for text in settings]
    if ours := [(flag, NAMES_ELSEWHERE[flag]) for flag in flags if flag in NAMES_ELSEWHERE]:
        theirs, here = (name.removeprefix("--").replace("-", "_") for name in ours[0])
        raise SettingsError(f"{theirs}: here it is called {here}")
    _adjust(server, settings_in(settings))


@app.command
def pause(*, server: Asked) -> None:
    """
    Pause the run: gradients wait, minutes do not count, workers stay. A paused run may be saved, stopped and resumed.
    """
    _adjust(server, {PAUSED: True})


@app.command
def resume(*, server: Asked) -> None:
    """Go on with a run that is paused or drained."""
    _adjust(server, {PAUSED: False, DRAINED: False})


@app.command
def drain(*, server: Asked, timeout: float = DRAIN_SECONDS) -> None:
    """
    Have all workers leave in order, and save: for work on their machines or on the server's.

    Each worker finishes its unroll, pushes it, and leaves when its pushes are applied. Others wait until ps-ctl resume.
    The server goes on, its weights can be read, and minutes do not count. ps-ctl stop ends the run.

    Args:
        timeout: seconds for the workers to leave; after them those that are left are an error
    """
    _ask(server, messages.Adjust(request=1, settings={DRAINED: True}, by=_name()), REPLY_SECONDS)
    deadline = time.monotonic() + timeout
    while left := [worker.worker_id for worker in _status(server).status.workers if worker.alive]:
        if time.monotonic() > deadline:
            raise PsRlError(
                f"{', '.join(left)} did not leave within {timeout:g} s. No others are admitted, and nothing was saved; "
                "give the command again to go on waiting"
            )
        time.sleep(POLL_SECONDS)
    if not server.json:
        print("all workers have left; ps-ctl resume admits workers again, ps-ctl stop ends the run")
    _save(server)


@app.command
def checkpoint(*, server: Asked) -> None:
    """Write a checkpoint now, and wait until it is on disk."""
    _save(server)


@app.command
def stop(*, server: Asked) -> None:
    """End the run: workers leave, the server saves, all programs exit."""
    reply = _ask(server, messages.StopRequest(request=1), REPLY_SECONDS)
    print(_json(reply) if server.json else "the run is ending: workers leave, the server saves and exits")


@app.command
def promote(*, server: Asked, reason: str = "") -> None:
    """
    Have a standby serve the run in place of a primary that is silent and does not come back.

    Without --reason the reply names what may be lost, and nothing changes. A primary that lives hands over by SIGTERM.

    Args:
        reason: why the primary does not come back; the log of the run keeps it
    """
    reply = _ask(server, messages.Promote(request=1, reason=as_text(reason)), REPLY_SECONDS)
    assert isinstance(reply, messages.Promoted)
    print(_json(reply) if server.json else f"serves the run from version {reply.version} on; {reply.lost}")


for command in (plot, keygen, reshard):
    app.command(command)


def _ask(server: Server, message: ToServer, timeout_seconds: float) -> ToWorker:
    keys = server.client_keys()
    reply = ask_run(server.address, message, timeout_seconds=timeout_seconds, keys=keys)[0]
    if isinstance(reply, Stop):
        raise PsRlError(f"the run is over: {reply.reason}")
    return reply


def _status(server: Server) -> messages.StatusReply:
    reply = _ask(server, messages.StatusRequest(request=1), REPLY_SECONDS)
    assert isinstance(reply, messages.StatusReply)
    return reply


def _save(server: AskedServer) -> None:
    reply = _ask(server, messages.CheckpointRequest(request=1), SAVE_SECONDS)
    assert isinstance(reply, messages.CheckpointSaved)
    print(_json(reply) if server.json else f"version {reply.version} saved as {reply.path}")


def _name() -> str:
    """The name of this program in the history of adjustments."""
    return as_text(f"ps-ctl at {socket.gethostname()}")


def _adjust(server: AskedServer, settings: Mapping[str, Any]) -> None:
    reply = _ask(server, messages.Adjust(request=1, settings=dict(settings), by=_name()), REPLY_SECONDS)
    assert isinstance(reply, messages.Adjusted)
    if server.json:
        print(_json(reply))
        return
    for adjustment in reply.adjustments:
        print(f"{adjustment.setting}: {change_in(adjustment)}")
    for setting in settings.keys() - {adjustment.setting for adjustment in reply.adjustments}:
        print(f"{setting}: is {text_of(settings[setting])} already")


def _json(value: msgspec.Struct) -> str:
    return msgspec.json.encode(value).decode()
