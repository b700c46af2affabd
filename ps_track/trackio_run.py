"""A run in Trackio, which keeps it in a file of this machine (TRACKIO_DIR), or in a Space (TRACKIO_SPACE_ID)."""

from collections.abc import Mapping, Sequence
from typing import Any

import trackio

from ps_common.run_folder.run_rows import EventRow
from ps_track.feed import PROJECT, Point, TrackedRun

LEVELS = {"warning": trackio.AlertLevel.WARN, "adjustment": trackio.AlertLevel.INFO, "end": trackio.AlertLevel.INFO}


class TrackioRun:
    """T is the step. Warnings, adjustments and the end are alerts; the result is a last point."""

    def __init__(self) -> None:
        self._run: Any = None
        self._name = ""
        self._global_steps = 0

    def begin(self, run: TrackedRun) -> None:
        self._name = f"{run.settings.get('preset', 'run')}-{run.run_id}"  # resumed by name
        self._run = trackio.init(
            project=PROJECT,
            name=self._name,
            group=run.experiment or None,
            config={"folder": run.name, **run.settings},
            resume="allow",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def add(self, points: Sequence[Point], events: Sequence[EventRow], *, first: int) -> None:
        for point in points:
            self._global_steps = point.global_steps
            trackio.log(dict(point.values), step=point.global_steps)
        for event in events:
            if event.kind in LEVELS:
                title = f"{event.kind} at T {event.global_steps}"
                trackio.alert(title=title, text=event.text, level=LEVELS[event.kind])

    def finish(self, summary: Mapping[str, Any]) -> str:
        if self._run is None:
            return ""
        numbers = {f"final_{name}": value for name, value in summary.items() if not isinstance(value, str)}
        trackio.log(numbers, step=self._global_steps)
        trackio.finish()  # type: ignore[no-untyped-call]
        self._run = None
        return f"run {self._name}; trackio show --project {PROJECT}"
