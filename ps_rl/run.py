"""
`Run`: a run as a Python object, from its folder; live or over.

A run that this process has started is a child process, `rl-cluster`, which a thread of its own starts: the kernel ends
a child when the thread that started it ends, and a notebook's threads come and go.
"""

import atexit
import io
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.child_processes import Child
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT, METRICS, check_whole_run, records_folder, shard_folder, shards_in
from ps_common.run_folder.run_rows import MetricsRow, RowsTail, last_row, rows_in, scored_rows
from ps_common.settings.run_files import SETTINGS, load_config
from ps_common.settings.run_settings import keywords_of
from rl_eval.games import Result

if TYPE_CHECKING:
    import pandas

LOG = "cluster.log"
LOOK_SECONDS = 0.2  # between two looks at files
START_SECONDS = 300.0  # for the server to listen
STOP_SECONDS = 30.0  # for a run to end in order


@dataclass(frozen=True)
class Curve:
    """The mean return of the last 100 games over steps and minutes of training: float64 arrays, all [N]."""

    steps: NDArray[np.float64]
    minutes: NDArray[np.float64]
    returns: NDArray[np.float64]


class Run:
    """A run, live or over: `train` starts one, `Run.open` reads a folder. Iterating yields its status, row by row."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._child: Child | None = None  # of a run that this process has started
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
    def started(cls, folder: Path, flags: Sequence[str]) -> "Run":
        """A new process of rl-cluster with these flags, once its server listens. Raises SettingsError."""
        run = cls(folder)
        begun = threading.Event()
        threading.Thread(target=run._keep, args=(flags, begun), name="run", daemon=True).start()
        begun.wait()
        atexit.register(run.stop)
        try:
            run._wait_for_server()
        except BaseException:
            run.stop()
            raise
        return run

    @property
    def endpoint(self) -> str:
        """HOST:PORT of the server while it serves, else ""; for `load_policy`, `ps-ctl` and workers elsewhere."""
        return read_endpoint(shard_folder(self.folder, 1, shards_in(self.folder)) / ENDPOINT)

    @property
    def is_live(self) -> bool:
        """Whether the run goes on: for a run of others, whether its server says where it listens."""
        return bool(self.endpoint) if self._child is None else self._child.exit_status is None

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run by the names of their flags. Raises SettingsError when they cannot be read."""
        return keywords_of(load_config(records_folder(self.folder) / SETTINGS))

    @property
    def status(self) -> MetricsRow | None:
        """The newest row; None before the first."""
        path = records_folder(self.folder) / METRICS
        return last_row(path, MetricsRow) if path.is_file() else None

    def __iter__(self) -> Iterator[MetricsRow]:
        """Each row of the metrics so far, then each as it comes, until the run is over."""
        tail: RowsTail[MetricsRow] | None = None
        try:
            while True:
                was_live = self.is_live
                path = records_folder(self.folder) / METRICS
                tail = tail or (RowsTail(path, MetricsRow) if path.is_file() else None)
                yield from tail.read()[0] if tail else ()
                if not was_live:
                    break
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            self.stop()
            raise
        self._check()

    def wait(self, timeout: float | None = None) -> MetricsRow | None:
        """Wait until the run is over, and return its last status. Raises TimeoutError, and PsRlError if it failed."""
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while self.is_live:
                if end is not None and time.monotonic() > end:
                    raise TimeoutError(f"{self.folder}: the run goes on")
                time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            self.stop()
            raise
        self._check()
        return self.status

    def stop(self) -> None:
        """End a run that this process has started, in order: workers leave, the server saves. Safe to repeat."""
        if self._child is not None and self._pid == os.getpid():  # not in a forked process
            self._child.end(within_seconds=STOP_SECONDS)
            atexit.unregister(self.stop)

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
        where it is None. `imports` names the modules of parts of your own, as `train` does.

        Raises PsRlError with what rl-eval says.
        """
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "result.json"
            flags = ["--checkpoint", str(self.folder), "--episodes", str(episodes), "--seed", str(seed)]
            flags += ["--json", str(path), *(["--greedy"] if greedy else [])]
            flags += [] if epsilon is None else ["--epsilon", str(epsilon)]
            flags += ["--import", *([imports] if isinstance(imports, str) else imports)] if imports else []
            child = Child("rl_eval", flags, Path(place) / "rl-eval.log")
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
        return f"<p><code>{escape(str(self.folder))}</code>: {state}{far}{best}</p>{_svg(self.curve())}"

    def _rows(self) -> Iterator[MetricsRow]:
        path = records_folder(self.folder) / METRICS
        return rows_in(path, MetricsRow) if path.is_file() else iter(())

    def _keep(self, flags: Sequence[str], begun: threading.Event) -> None:
        """The thread of a started run."""
        try:
            self._child = Child("rl_cluster", flags, self.folder / LOG)
        finally:
            begun.set()
        while self._child.exit_status is None:
            self._child.wait(within_seconds=LOOK_SECONDS)

    def _wait_for_server(self) -> None:
        if self._child is None:
            raise SettingsError(f"{self.folder / LOG}: cannot be written")
        while not self.endpoint and self._child.exit_status is None:
            if self._child.age_seconds > START_SECONDS:
                raise PsRlError(f"the server did not come up within {START_SECONDS:.0f} s; see {self.folder / LOG}")
            time.sleep(LOOK_SECONDS)
        self._check()

    def _check(self) -> None:
        """Raises PsRlError when the run has failed."""
        if self._child is not None and self._child.has_died:
            raise PsRlError(self._child.cause_of_death())


def _svg(curve: Curve) -> str:
    """A picture of the curve; "" without games."""
    if not len(curve.steps):
        return ""
    from matplotlib.figure import Figure  # takes a second; without pyplot, which would change a notebook's backend

    figure = Figure(figsize=(6, 2.5), layout="constrained")
    axes = figure.subplots()
    axes.plot(curve.steps, curve.returns)
    axes.set(xlabel="environment steps of all workers", ylabel="mean return of 100 games")
    axes.grid(alpha=0.3)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    _, beginning, rest = text.getvalue().partition("<svg")  # without the head of a file
    return beginning + rest
