"""`Run`: a run as a Python object, from its folder; live or over."""

import atexit
import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.child_processes import Child
from ps_common.program.progress_display import ProgressDisplay
from ps_common.program.reasons import reason_of
from ps_common.protocol.messages import (
    Adjust,
    CheckpointRequest,
    CheckpointSaved,
    Stop,
    StopRequest,
    ToServer,
    ToWorker,
)
from ps_common.protocol.names import as_text
from ps_common.run_folder.endpoint_file import is_serving
from ps_common.run_folder.paths import METRICS, check_whole_run, records_folder
from ps_common.run_folder.run_rows import MetricsRow
from ps_common.settings.adjustable import by_full_name
from ps_common.settings.run_files import SETTINGS
from ps_common.sockets.curve import ClientKeys, client_keys
from ps_common.sockets.request import ask_run, status_of
from ps_rl.cluster_process import LOOK_SECONDS, STOP_SECONDS, ClusterProcess
from ps_rl.custom_objects import pickled
from ps_rl.recorded_run import RecordedRun
from ps_rl.updates import LoggedCurves, Update, Updates, updates_of

if TYPE_CHECKING:
    pass

Callback = Callable[["Run", Update], object]

REPLY_SECONDS = 5.0  # of a server
SAVE_SECONDS = 60.0  # until a checkpoint is on disk


class Run(RecordedRun):
    """A run, live or over: `train` starts one, `Run.open` reads a folder. Iterating yields its updates."""

    def __init__(
        self,
        folder: Path,
        objects: Mapping[str, Any] | None = None,
        modules: Sequence[str] = (),
        keys: ClientKeys | None = None,
    ) -> None:
        """
        `objects`: parts without an import path, by name; `modules`: of the others that this program named; `keys`: for
        a locked server.
        """
        self.folder = folder
        self._keys = keys
        self.modules, self.objects = modules, objects or {}
        self._newest: MetricsRow | None = None  # update that a callback or an iteration has had
        self._curves: LoggedCurves | None = None  # that this program adds
        self._follower: threading.Thread | None = None  # calls callbacks
        self._failure: BaseException | None = None  # of a callback
        self._child: Child | None = None  # of a run that this process has started
        self.ask_here: Callable[[ToServer], ToWorker] | None = None  # of the server of a run here, while it goes on
        self._is_followed = False  # by this program, which has waited for updates or for the end
        self._pid = os.getpid()

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        curve_server_key: str | Path | None = None,
        curve_secret: str | Path | None = None,
    ) -> "Run":
        """
        The run in a run folder, whoever trains it. A locked server takes the two key files of `ps-ctl`; to stop and
        steer the run the secret has to be an admin's. Raises SettingsError when there is no run.
        """
        path = Path(folder).absolute()
        check_whole_run(path, flag=str(folder))
        if not (path / SETTINGS).is_file() and not (records_folder(path) / METRICS).is_file():
            raise SettingsError(f"{folder}: is no run folder: there is neither {SETTINGS} nor {METRICS} in it")
        return cls(path, keys=client_keys(curve_server_key, curve_secret))

    def started(self, flags: Sequence[str], callbacks: Sequence[Callback] = ()) -> "Run":
        """Itself, with a process of rl-cluster that has these flags, once its server listens. Raises SettingsError."""
        had = Updates(records_folder(self.folder))
        had.read()  # of a run that is resumed: callbacks get what comes after it
        process = ClusterProcess(flags, self.folder, pickled(self.objects), when_over=self._forget)
        self._child = process.child
        atexit.register(self._at_exit)
        try:
            process.wait_for_server()
            self._check()
        except BaseException:
            self.stop()
            raise
        if callbacks:
            arguments = (callbacks, had)
            self._follower = threading.Thread(target=self._follow, args=arguments, name="callbacks", daemon=True)
            self._follower.start()
        return self

    @property
    def is_live(self) -> bool:
        """Whether the run goes on: for a run of others, whether its server writes to the folder, or answers."""
        if self._child is not None:
            return self._child.exit_status is None
        return self.ask_here is not None or is_serving(records_folder(self.folder)) or self._answers()

    def __iter__(self) -> Iterator[Update]:
        """Each update so far, then each as it comes, until the run is over. Raises PsRlError if it failed."""
        self._is_followed = True
        try:
            for update in updates_of(self.folder, lambda: self.is_live):
                self._newest = update
                yield update
        except KeyboardInterrupt:
            self.stop()
            raise
        self._check()

    def wait(self, timeout: float | None = None) -> MetricsRow | None:
        """
        Wait until the run is over and callbacks have had all of it, and return its last status.

        Raises TimeoutError, PsRlError if it failed, and what a callback has raised.
        """
        self._is_followed = True
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while self.is_live or (self._follower is not None and self._follower.is_alive()):
                if end is not None and time.monotonic() > end:
                    raise TimeoutError(f"{self.folder}: the run goes on")
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            self.stop()
            raise
        self._check()
        return self.status

    def watch(self) -> MetricsRow | None:
        """As `wait`, beside the progress: a panel that changes in a notebook or terminal, lines in a pipe."""
        with ProgressDisplay() as shown:
            for update in self:
                shown.show(update)
            if last := self.status:
                shown.finish(last)
        return last

    def stop(self, reason: str = "") -> None:
        """
        End a run that this process has started, in order: workers leave, the server saves. Safe to repeat.

        The `reason` is shown as that of the run's end. With a reason a run of others is asked to end, too: raises
        PsRlError when its server does not reply, or refuses.
        """
        if self.ask_here is not None:
            self._ask(StopRequest(request=1, reason=as_text(reason or "stopped")))
            return
        is_ours = self._child is not None and self._pid == os.getpid()  # not in a forked process
        if reason and self.endpoint:
            with contextlib.suppress(*([PsRlError] if is_ours else [])):
                self._ask(StopRequest(request=1, reason=as_text(reason), failed=self._failure is not None))
                if is_ours and self._child is not None:
                    self._child.wait(within_seconds=STOP_SECONDS)
        if is_ours and self._child is not None:
            self._child.end(within_seconds=STOP_SECONDS)
            self._forget()

    def set(self, **settings: Any) -> None:
        """
        Change settings while the run goes on, all of them or none: `run.set(learning_rate=1e-4, until_return=None)`, as
        `ps-ctl set`. Raises SettingsError for what cannot be set, and PsRlError when the server does not reply.
        """
        self._ask(Adjust(request=1, settings=by_full_name(settings), by="Python"))

    def pause(self) -> None:
        """Pause the run: gradients wait, minutes do not count, workers stay."""
        self.set(paused=True)

    def resume(self) -> None:
        """Go on with a run that is paused or drained."""
        self.set(paused=False, drained=False)

    def checkpoint(self) -> Path:
        """Write a checkpoint now; returns its file, of shard 1 where there are shards, once it is on disk."""
        reply = self._ask(CheckpointRequest(request=1), seconds=SAVE_SECONDS)
        assert isinstance(reply, CheckpointSaved), "no other reply is one to this request"
        return Path(reply.path)

    def log(self, name: str, value: float) -> None:
        """
        Add a point to the curve NAME of the run, at the T of the newest update: on the page, in TensorBoard and at
        trackers; `logged/NAME` unless the name has a slash. Up to 64 names, 20 points a second.

        Raises SettingsError for what is no name, and when the folder cannot be written.
        """
        if self._curves is None:
            self._curves = LoggedCurves(records_folder(self.folder))
            weakref.finalize(self, self._curves.close)
        self._curves.add(name, value, at=self._newest or self.status)

    def __enter__(self) -> "Run":
        self._is_followed = True
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Run {self.folder}, {self._so_far()}>"

    def _repr_html_(self) -> str:
        """For notebooks: where the run is, how far, and its curve as SVG."""
        return f"<p><code>{escape(str(self.folder))}</code>: {self._so_far()}</p>{self.curve().svg()}"

    def _so_far(self) -> str:
        return ("live" if self.is_live else "over") + (f", {status.so_far}" if (status := self.status) else "")

    def call(self, callbacks: Sequence[Callback], update: Update) -> None:
        """Call each with an update."""
        self._newest = update
        for callback in callbacks:
            callback(self, update)

    def _ask(self, message: ToServer, *, seconds: float = REPLY_SECONDS) -> ToWorker:
        """The reply of the run's server. Raises PsRlError when it does not reply, or refuses."""
        if self.ask_here is not None:
            return self.ask_here(message)
        if not (endpoint := self.endpoint):
            raise PsRlError(f"{self.folder}: no server serves this run now")
        reply, _ = ask_run(endpoint, message, timeout_seconds=seconds, keys=self._keys)
        if isinstance(reply, Stop):
            raise PsRlError(f"{self.folder}: the run is over: {reply.reason}")
        return reply

    def _answers(self) -> bool:
        with contextlib.suppress(PsRlError):
            return bool(self.endpoint) and bool(status_of(self.endpoint, timeout_seconds=1.0, keys=self._keys))
        return False

    def _follow(self, callbacks: Sequence[Callback], had: Updates) -> None:
        """The thread of callbacks, which get what comes after `had`. An error in one ends the run."""
        try:
            for update in updates_of(self.folder, lambda: self.is_live, had):
                self.call(callbacks, update)
        except BaseException as error:
            self._failure = error
            self.stop(f"a callback has failed: {reason_of(error)}")

    def _check(self) -> None:
        """The run is over. Raises PsRlError when it has failed, and what a callback has raised."""
        if not self.is_live:
            self._forget()
        if self._failure is not None:
            raise self._failure
        if self._child is not None and self._child.has_died:
            raise PsRlError(self._child.cause_of_death())
        if self._child is None and (last := self.status) and last.failed and not self.is_live:
            raise PsRlError(last.ending)

    def _forget(self) -> None:
        """Have nothing done at the end of this program: the run is over, and this object may be collected."""
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """
        The program has ended: wait for a run that it has started and then not looked at, as for a thread that is no
        daemon. Others are stopped, and so is each after an error or in an interactive session.
        """
        is_in_order = not hasattr(sys, "ps1") and not sys.flags.interactive and not hasattr(sys, "last_value")
        if is_in_order and not self._is_followed and self._pid == os.getpid() and self.is_live:
            print(f"{self.folder}: the program has ended, and waits for its run; Ctrl-C stops it", file=sys.stderr)
            try:
                self.wait()
            except (Exception, KeyboardInterrupt) as error:
                print(f"{self.folder}: {reason_of(error)}", file=sys.stderr)
        self.stop()
