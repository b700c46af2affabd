"""
`Run`: a run as a Python object, from its folder; live or over.
"""

import atexit
import contextlib
import os
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.child_processes import Child
from ps_common.program.objects import handed, pickled
from ps_common.program.reasons import reason_of
from ps_common.protocol.messages import StopRequest
from ps_common.protocol.names import as_text
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT, METRICS, check_whole_run, records_folder, shard_folder, shards_in
from ps_common.run_folder.run_rows import MetricsRow, last_row, rows_in, scored_rows
from ps_common.settings.run_files import SETTINGS, load_config
from ps_common.settings.run_settings import keywords_of
from ps_common.sockets.request import ask_run
from ps_rl.cluster_process import ClusterProcess
from ps_rl.curve import Curve
from ps_rl.updates import LoggedCurves, Update, Updates
from rl_eval.games import Result

if TYPE_CHECKING:
    import pandas

Callback = Callable[["Run", Update], object]

LOG = "cluster.log"
LOOK_SECONDS = 0.2  # between two looks at files
STOP_SECONDS = 30.0  # for a run to end in order
REPLY_SECONDS = 5.0  # of a server that is asked to end its run


class Run:
    """A run, live or over: `train` starts one, `Run.open` reads a folder. Iterating yields its updates."""

    def __init__(self, folder: Path, objects: Mapping[str, Any] | None = None, modules: Sequence[str] = ()) -> None:
        """`objects`: parts without an import path, by name; `modules`: of the others that this program named."""
        self.folder = folder
        self.modules = modules
        self._objects = objects or {}
        self._newest: MetricsRow | None = None  # update that a callback or an iteration has had
        self._curves: LoggedCurves | None = None  # that this program adds
        self._follower: threading.Thread | None = None  # calls callbacks
        self._failure: BaseException | None = None  # of a callback
        self._child: Child | None = None  # of a run that this process has started
        self.stop_here: Callable[[str], None] | None = None  # ends a run in this process, while it goes on
        self._pid = os.getpid()

    @classmethod
    def open(cls, folder: str | Path) -> "Run":
        """The run in a run folder, whoever trains it. Raises SettingsError when there is none."""
        path = Path(folder).absolute()
        check_whole_run(path, flag=str(folder))
        if not (path / SETTINGS).is_file() and not (records_folder(path) / METRICS).is_file():
            raise SettingsError(f"{folder}: is no run folder: there is neither {SETTINGS} nor {METRICS} in it")
        return cls(path)

    @classmethod
    def started(
        cls,
        folder: Path,
        flags: Sequence[str],
        callbacks: Sequence[Callback] = (),
        objects: Mapping[str, Any] | None = None,
        modules: Sequence[str] = (),
    ) -> "Run":
        """A new process of rl-cluster with these flags, once its server listens. Raises SettingsError."""
        run = cls(folder, objects, modules)
        process = ClusterProcess(flags, folder / LOG, pickled(run._objects))
        run._child = process.child
        atexit.register(run.stop)
        try:
            process.wait_for_server(lambda: run.endpoint)
            run._check()
        except BaseException:
            run.stop()
            raise
        if callbacks:
            run._follower = threading.Thread(target=run._follow, args=(callbacks,), name="callbacks", daemon=True)
            run._follower.start()
        return run

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the server while it serves, else ""; for `load_policy`, `ps-ctl` and workers elsewhere."""
        return read_endpoint(shard_folder(self.folder, 1, shards_in(self.folder)) / ENDPOINT)

    @property
    def is_live(self) -> bool:
        """Whether the run goes on: for a run of others, whether its server says where it listens."""
        if self._child is None:
            return self.stop_here is not None or bool(self.endpoint)
        return self._child.exit_status is None

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run by the names of their flags. Raises SettingsError when they cannot be read."""
        return keywords_of(load_config(records_folder(self.folder) / SETTINGS))

    @property
    def status(self) -> MetricsRow | None:
        """The newest row; None before the first."""
        path = records_folder(self.folder) / METRICS
        return last_row(path, MetricsRow) if path.is_file() else None

    def __iter__(self) -> Iterator[Update]:
        """Each update so far, then each as it comes, until the run is over. Raises PsRlError if it failed."""
        try:
            for update in self._updates():
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

    def stop(self, reason: str = "") -> None:
        """
        End a run that this process has started, in order: workers leave, the server saves. Safe to repeat.

        The `reason` is shown as that of the run's end. With a reason a run of others is asked to end, too: raises
        PsRlError when its server does not reply, or refuses.
        """
        if self.stop_here is not None:
            self.stop_here(reason or "stopped")
            return
        is_ours = self._child is not None and self._pid == os.getpid()  # not in a forked process
        if reason and (endpoint := self.endpoint):
            with contextlib.suppress(*([PsRlError] if is_ours else [])):
                ask_run(endpoint, StopRequest(request=1, reason=as_text(reason)), timeout_seconds=REPLY_SECONDS)
                if is_ours and self._child is not None:
                    self._child.wait(within_seconds=STOP_SECONDS)
        if is_ours and self._child is not None:
            self._child.end(within_seconds=STOP_SECONDS)
            atexit.unregister(self.stop)

    def log(self, name: str, value: float) -> None:
        """
        Add a point to the curve NAME of the run, at the T of the newest update: on the page, in TensorBoard and at
        trackers; `logged/NAME` unless the name has a slash. Up to 64 names, 20 points a second.

        Raises SettingsError for what is no name, and when the folder cannot be written.
        """
        if self._curves is None:
            try:
                self._curves = LoggedCurves(records_folder(self.folder))
            except OSError as error:
                raise SettingsError(f"{self.folder}: curves cannot be kept there: {error.strerror}") from error
            weakref.finalize(self, self._curves.close)
        self._curves.add(name, value, at=self._newest or self.status)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def checkpoints(self) -> list[Path]:
        """The checkpoints of the run, the newest first; of shard 1 where it has shards."""
        return checkpoints_of(shard_folder(self.folder, 1, shards_in(self.folder)))

    def curve(self) -> Curve:
        """The learning curve so far; empty arrays before the first game has ended."""
        rows = scored_rows(self._rows())
        return Curve(
            np.array([row.global_steps for row in rows], np.float64),
            np.array([row.minutes for row in rows], np.float64),
            np.array([row.mean_return_100 for row in rows], np.float64),
        )

    def frame(self) -> "pandas.DataFrame":
        """All rows as a data frame, a column for each field. Raises ImportError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Run.frame needs pandas: pip install pandas; Run.curve does without") from error
        return pandas.DataFrame([msgspec.to_builtins(row) for row in self._rows()])

    def evaluate(
        self,
        *,
        episodes: int = 100,
        greedy: bool = False,
        epsilon: float | None = None,
        seed: int = 1_000_000,
        imports: Sequence[str] = (),
    ) -> Result:
        """
        Full games with the best weights (or the newest sound ones), played by `rl-eval` in a process of its own.

        The same seed gives the same games. `epsilon` is the share of random actions of a method of action values, 0.05
        where it is None. `imports` names modules of custom parts, beside those that this program has named to `train`.

        Raises PsRlError with what rl-eval says.
        """
        with tempfile.TemporaryDirectory() as place, handed(pickled(self._objects)) as variables:
            path = Path(place) / "result.json"
            flags = ["--checkpoint", str(self.folder), "--episodes", str(episodes), "--seed", str(seed)]
            flags += ["--json", str(path), *(["--greedy"] if greedy else [])]
            flags += [] if epsilon is None else ["--epsilon", str(epsilon)]
            modules = [*self.modules, *([imports] if isinstance(imports, str) else imports)]
            flags += ["--import", *modules] if modules else []
            child = Child("rl_eval", flags, Path(place) / "rl-eval.log", variables)
            try:
                child.wait()
            finally:
                child.end(within_seconds=0)
            if not child.has_done_its_work:
                raise PsRlError(f"rl-eval: {child.cause_of_death()}")
            return msgspec.json.decode(path.read_bytes(), type=Result)

    def __repr__(self) -> str:
        return f"<Run {self.folder}, {'live' if self.is_live else 'over'}>"

    def _repr_html_(self) -> str:
        """For notebooks: where the run is, how far, and its curve as SVG."""
        status = self.status
        far = "" if status is None else f", {status.global_steps:,} steps, {status.minutes:.1f} minutes"
        best = "" if status is None or status.mean_return_100 is None else f", mean return {status.mean_return_100:.2f}"
        state = "live" if self.is_live else "over"
        return f"<p><code>{escape(str(self.folder))}</code>: {state}{far}{best}</p>{self.curve().svg()}"

    def _rows(self) -> Iterator[MetricsRow]:
        path = records_folder(self.folder) / METRICS
        return rows_in(path, MetricsRow) if path.is_file() else iter(())

    def _updates(self) -> Iterator[Update]:
        updates: Updates | None = None
        was_live = True
        while was_live:
            was_live = self.is_live
            folder = records_folder(self.folder)
            updates = updates or (Updates(folder) if (folder / METRICS).is_file() else None)
            yield from updates.read() if updates else ()
            if was_live:
                time.sleep(LOOK_SECONDS)

    def call(self, callbacks: Sequence[Callback], update: Update) -> None:
        """Call each with an update."""
        self._newest = update
        for callback in callbacks:
            callback(self, update)

    def _follow(self, callbacks: Sequence[Callback]) -> None:
        """The thread of callbacks. An error in one ends the run."""
        try:
            for update in self._updates():
                self.call(callbacks, update)
        except BaseException as error:
            self._failure = error
            self.stop(f"a callback has failed: {reason_of(error)}")

    def _check(self) -> None:
        """Raises PsRlError when the run has failed, and what a callback has raised."""
        if self._failure is not None:
            raise self._failure
        if self._child is not None and self._child.has_died:
            raise PsRlError(self._child.cause_of_death())
