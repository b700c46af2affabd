"""
`python -m ps_track RUN_DIR --track NAME`: sends a run to a tracker; with --follow until a signal comes.

A tracker that fails is tried again, at growing intervals, with the rows that it has not got. A batch that failed in the
middle is sent again as a whole.
"""

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from ps_common.errors import PsRlError, SettingsError
from ps_common.program.flags import parse_program
from ps_common.program.output import log_as
from ps_common.program.reasons import report_reason
from ps_common.program.stop_signals import Interrupted, StopSignal
from ps_common.run_folder.paths import METRICS, run_name, tracker_position
from ps_common.run_folder.trackers import TrackerName, check_trackers
from ps_common.settings.run_files import SETTINGS, settings_as_written
from ps_common.settings.run_settings import flat_settings
from ps_track.feed import Batch, Feed, summary_of
from ps_track.trackers import TRACKERS, TrackedRun, Tracker

PROGRAM = "ps-track"
POLL_SECONDS = 2.0
MOST_RETRY_SECONDS = 60.0

log = logging.getLogger(PROGRAM)


@dataclass(frozen=True, kw_only=True)
class TrackSettings:
    """
    Sends the numbers, settings, events and result of a run to an experiment tracker.

    rl-cluster does that with --track. For a run that is over: python -m ps_track RUN_DIR --track mlflow
    """

    run: Annotated[Path, tyro.conf.Positional]
    """run folder"""
    track: TrackerName
    """wandb (WANDB_MODE=offline without its service), mlflow (./mlflow.db, or MLFLOW_TRACKING_URI)"""
    follow: bool = False
    """go on until a signal comes; else the run is sent as it stands"""


def track(argv: Sequence[str] | None = None) -> int:
    """Run the program. Raises PsRlError."""
    log_as(PROGRAM)
    settings = parse_program(TrackSettings, argv, prog=PROGRAM)
    check_trackers([settings.track])
    if not settings.follow and not (settings.run / METRICS).exists():
        raise SettingsError(f"{settings.run}: is no run folder: there is no {METRICS} in it")
    tracking = Tracking(settings.run, settings.track)
    if settings.follow:
        tracking.serve()
    else:
        StopSignal()  # what has begun is sent to its end
    where = tracking.finish()
    print(where, flush=True)
    report_reason("left", where)
    return 0


class Tracking:
    """One run and its tracker."""

    def __init__(self, folder: Path, name: TrackerName) -> None:
        self._folder = folder
        self._name = name
        self._feed = Feed(folder, tracker_position(folder, name))
        self._tracker: Tracker | None = None
        self._unsent: Batch | None = None  # of the rows that were read; the others wait in the files

    def serve(self) -> None:
        """Send what is new, again and again, until a signal comes."""
        wait = POLL_SECONDS
        with contextlib.suppress(Interrupted):
            stop = StopSignal(raises=True)
            while True:
                with stop.postponed():
                    try:
                        self.send()
                        wait = POLL_SECONDS
                    except Exception as error:  # whatever the tracker's package raises
                        wait = min(2 * wait, MOST_RETRY_SECONDS)
                        log.warning("%s: %s; trying again in %.0f s", type(error).__name__, error, wait)
                time.sleep(wait)

    def send(self) -> None:
        """Send the rows that are new. Raises what the tracker raises; the rows are sent with the next call then."""
        while True:
            batch = self._unsent = self._unsent or self._feed.read()
            if self._feed.newest is None or not (batch.points or batch.events):
                self._unsent = None
                return
            tracker = self._begun(self._feed.newest.run_id)
            tracker.add(batch.points, batch.events, first=self._feed.position.points)
            self._feed.position.points += len(batch.points)
            self._unsent = None
            self._feed.save_position()

    def finish(self) -> str:
        """Send the last rows and the result; where they are. Raises PsRlError."""
        try:
            self.send()
            if self._tracker is None or self._feed.newest is None:
                return "there was nothing to send"
            where = self._tracker.finish(summary_of(self._feed.newest))
            return f"{self._feed.position.points} points sent; {where}"
        except Exception as error:
            raise PsRlError(f"{self._name}: {type(error).__name__}: {error}") from error

    def _begun(self, run_id: str) -> Tracker:
        if self._tracker is None:
            settings: dict[str, Any] = flat_settings(settings_as_written(self._folder / SETTINGS))
            experiment = str(settings.get("experiment", ""))
            run = TrackedRun(run_id, run_name(self._folder), experiment, self._folder, settings)
            self._tracker = TRACKERS[self._name](run)
        return self._tracker
