"""
The experiment trackers of a run: for each `--track NAME` a child process that reads the run's folder, and sends its
rows.

The files of the run are the queue. A tracker that fails, hangs or cannot be reached slows nothing down, and gets the
rows later. Which rows those are, ps_track decides.
"""

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from common.errors import SettingsError
from common.program.child_processes import Child
from common.run_folder.paths import tracker_log

TrackerName = Literal["wandb", "trackio", "mlflow"]
# The packages of each extra that ps_track imports.
PACKAGES: dict[TrackerName, tuple[str, ...]] = {
    "wandb": ("wandb",),
    "trackio": ("trackio",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
}
LEAVE_SECONDS = 20.0  # to send the last rows when the run has ended


def check_trackers(names: Sequence[TrackerName]) -> None:
    """Raises SettingsError that names the extra when a tracker's package is not installed."""
    for name in names:
        if missing := [package for package in PACKAGES[name] if find_spec(package) is None]:
            raise SettingsError(
                f"--track {name}: {' and '.join(missing)} cannot be imported: "
                f"pip install -c constraints.txt '.[{name}]'"
            )


@contextmanager
def trackers(
    folder: Path,
    names: Sequence[TrackerName],
    *,
    report: Callable[[str], None],
    leave_seconds: float = LEAVE_SECONDS,
) -> Iterator[None]:
    """
    The run in this folder is tracked while the block runs. `report` gets a line for each tracker when it has ended.

    Raises SettingsError when a log cannot be written.
    """
    children: dict[TrackerName, Child] = {}
    try:
        for name in dict.fromkeys(names):
            children[name] = Child("ps_track", [str(folder), "--track", name, "--follow"], tracker_log(folder, name))
        yield
    finally:
        for child in children.values():
            child.ask_to_leave()
        ends = time.monotonic() + leave_seconds
        for name, child in children.items():
            is_done = child.wait(within_seconds=max(0.0, ends - time.monotonic()))
            child.end(within_seconds=0)
            report(_ending(name, child, folder, is_done=is_done))


def _ending(name: TrackerName, child: Child, folder: Path, *, is_done: bool) -> str:
    if is_done and child.exit_status == 0:
        return f"{name}: {child.last_line()}"
    why = child.cause_of_death() if is_done else f"its last rows were not sent in time (its log: {child.log})"
    where = shlex.quote(str(folder))
    return f"{name}: {why}. The rest of the run is sent by: python -m ps_track {where} --track {name}"
