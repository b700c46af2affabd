"""`Run`: a run as a Python object, from its folder; live or over."""

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

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.child_processes import Child
from ps_common.program.objects import have, pickled
from ps_common.program.progress_display import ProgressDisplay
from ps_common.program.reasons import reason_of
from ps_common.protocol.messages import StopRequest
from ps_common.protocol.names import as_text
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.endpoint_file import is_serving, read_endpoint
from ps_common.run_folder.paths import ENDPOINT, EPISODES, METRICS, check_whole_run, records_folder
from ps_common.run_folder.run_rows import EpisodeRow, MetricsRow, last_row, read_episodes, rows_in
from ps_common.settings.run_files import SETTINGS, load_config
from ps_common.settings.run_settings import keywords_of
from ps_common.sockets.request import ask_run, status_of
from ps_rl.cluster_process import ClusterProcess, run_rl_eval
from ps_rl.updates import LOOK_SECONDS, Curve, LoggedCurves, Update, updates_of
from rl_eval.games import Result

if TYPE_CHECKING:
    import pandas

    from rl_eval.policy import Policy

Callback = Callable[["Run", Update], object]

STOP_SECONDS = 30.0  # for a run to end in order
REPLY_SECONDS = 5.0  # of a server


class Run:
    """A run, live or over: `train` starts one, `Run.open` reads a folder. Iterating yields its updates."""

    def __init__(self, folder: Path, objects: Mapping[str, Any] | None = None, modules: Sequence[str] = ()) -> None:
        """`objects`: parts without an import path, by name; `modules`: of the others that this program named."""
        self.folder = folder
        self.modules = modules
        self.objects = objects or {}
        self._began = time.time()  # for this program: a run that is resumed has older rows
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

    def started(self, flags: Sequence[str], callbacks: Sequence[Callback] = ()) -> "Run":
        """Itself, with a process of rl-cluster that has these flags, once its server listens. Raises SettingsError."""
        process = ClusterProcess(flags, self.folder, pickled(self.objects))
        self._child = process.child
        atexit.register(self.stop)
        try:
            process.wait_for_server()
            self._check()
        except BaseException:
            self.stop()
            raise
        if callbacks:
            self._follower = threading.Thread(target=self._follow, args=(callbacks,), name="callbacks", daemon=True)
            self._follower.start()
        return self

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the server while it serves, else ""; for `load_policy`, `ps-ctl` and workers elsewhere."""
        return read_endpoint(records_folder(self.folder) / ENDPOINT)

    @property
    def is_live(self) -> bool:
        """Whether the run goes on: for a run of others, whether its server writes to the folder, or answers."""
        if self._child is not None:
            return self._child.exit_status is None
        return self.stop_here is not None or is_serving(records_folder(self.folder)) or self._answers()

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run by the names of their flags. Raises SettingsError when they cannot be read."""
        return keywords_of(load_config(records_folder(self.folder) / SETTINGS))

    @property
    def status(self) -> MetricsRow | None:
        """The newest row; None before the first."""
        return last_row(records_folder(self.folder) / METRICS, MetricsRow)

    def __iter__(self) -> Iterator[Update]:
        """Each update so far, then each as it comes, until the run is over. Raises PsRlError if it failed."""
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
        if self.stop_here is not None:
            self.stop_here(reason or "stopped")
            return
        is_ours = self._child is not None and self._pid == os.getpid()  # not in a forked process
        if reason and (endpoint := self.endpoint):
            with contextlib.suppress(*([PsRlError] if is_ours else [])):
                request = StopRequest(request=1, reason=as_text(reason), failed=self._failure is not None)
                ask_run(endpoint, request, timeout_seconds=REPLY_SECONDS)
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
            self._curves = LoggedCurves(records_folder(self.folder))
            weakref.finalize(self, self._curves.close)
        self._curves.add(name, value, at=self._newest or self.status)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def checkpoints(self) -> list[Path]:
        """The checkpoints of the run, the newest first; of shard 1 where it has shards."""
        return checkpoints_of(records_folder(self.folder))

    def curve(self) -> Curve:
        """The learning curve so far; empty arrays before the first game has ended."""
        return Curve.of(self._rows())

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
        with tempfile.TemporaryDirectory() as place:
            flags = ["--episodes", str(episodes), "--seed", str(seed), "--json", str(path := Path(place) / "result")]
            flags += [*(["--greedy"] if greedy else []), *([] if epsilon is None else ["--epsilon", str(epsilon)])]
            self._rl_eval(flags, imports)
            return msgspec.json.decode(path.read_bytes(), type=Result)

    def export(
        self, folder: str | Path, *, episodes: int = 100, onnx: bool = False, imports: Sequence[str] = ()
    ) -> Path:
        """
        Write the policy with the best weights into a new folder, which `load_policy` takes; its card has its score in
        so many games. `onnx` adds the network as ONNX. Raises PsRlError with what rl-eval says.
        """
        self._rl_eval(["--episodes", str(episodes), "--export", str(folder), *(["--onnx"] if onnx else [])], imports)
        return Path(folder)

    def policy(self, checkpoint: str | Path = "best", *, imports: Sequence[str] = (), seed: int = 0) -> "Policy":
        """
        The policy with the "best" weights (or the newest sound ones), the "last" ones, or those of a checkpoint.
        `imports` and `seed` are those of `load_policy`, which says what is raised.
        """
        from rl_eval.policy import load_policy

        have(self.objects)  # another run may have taken their names
        path = self.folder if checkpoint in ("best", "last") else checkpoint
        return load_policy(path, imports=self._modules(imports), seed=seed, newest=checkpoint == "last")

    def episodes(self) -> list[EpisodeRow]:
        """The games that workers have played, in order; of long runs the older ones as means of several."""
        folder = records_folder(self.folder)
        return read_episodes(folder) if (folder / EPISODES).is_file() else []

    def _rl_eval(self, flags: Sequence[str], imports: Sequence[str]) -> None:
        named = ["--import", *modules] if (modules := self._modules(imports)) else []
        run_rl_eval(["--checkpoint", str(self.folder), *flags, *named], pickled(self.objects))

    def _modules(self, imports: Sequence[str]) -> list[str]:
        return [*self.modules, *([imports] if isinstance(imports, str) else imports)]

    def __repr__(self) -> str:
        return f"<Run {self.folder}, {self._so_far()}>"

    def _repr_html_(self) -> str:
        """For notebooks: where the run is, how far, and its curve as SVG."""
        return f"<p><code>{escape(str(self.folder))}</code>: {self._so_far()}</p>{self.curve().svg()}"

    def _so_far(self) -> str:
        return ("live" if self.is_live else "over") + (f", {status.so_far}" if (status := self.status) else "")

    def _rows(self) -> Iterator[MetricsRow]:
        path = records_folder(self.folder) / METRICS
        return rows_in(path, MetricsRow) if path.is_file() else iter(())

    def call(self, callbacks: Sequence[Callback], update: Update) -> None:
        """Call each with an update, unless it is older than this program's part in the run."""
        self._newest = update
        for callback in callbacks if update.time > self._began else ():
            callback(self, update)

    def _answers(self) -> bool:
        with contextlib.suppress(PsRlError):
            return bool(self.endpoint) and bool(status_of(self.endpoint, timeout_seconds=1.0))
        return False

    def _follow(self, callbacks: Sequence[Callback]) -> None:
        """The thread of callbacks. An error in one ends the run."""
        try:
            for update in updates_of(self.folder, lambda: self.is_live):
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
        if self._child is None and (last := self.status) and last.failed and not self.is_live:
            raise PsRlError(last.ending)
