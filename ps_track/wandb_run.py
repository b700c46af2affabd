"""A run at Weights & Biases. WANDB_MODE=offline keeps it in RUN_DIR/wandb, for `wandb sync`."""

from collections.abc import Mapping, Sequence
from typing import Any

import wandb

from ps_common.run_folder.run_rows import EventRow
from ps_track.feed import PROJECT, Point, TrackedRun


class WandbRun:
    """T is the axis of every chart. Warnings and the end are alerts; an adjustment changes the config."""

    def __init__(self) -> None:
        self._run: Any = None

    def begin(self, run: TrackedRun) -> None:
        self._run = wandb.init(
            project=PROJECT,
            id=run.run_id,
            name=run.name,
            group=run.experiment or None,
            dir=run.folder,
            resume="allow",
            settings=wandb.Settings(console="off", x_disable_stats=True, disable_git=True, save_code=False),
        )
        self._run.config.update(dict(run.settings), allow_val_change=True)
        self._run.define_metric("global_steps", hidden=True)
        self._run.define_metric("*", step_metric="global_steps")

    def add(self, points: Sequence[Point], events: Sequence[EventRow], *, first: int) -> None:
        for number, point in enumerate(points, start=first):
            self._run.log({**point.values, "global_steps": point.global_steps}, step=number)
        for event in events:
            if event.kind in ("warning", "end"):
                self._run.alert(title=f"{event.kind} at T {event.global_steps}", text=event.text)
            elif event.kind == "adjustment":
                self._run.config.update({f"adjusted.T{event.global_steps}": event.text}, allow_val_change=True)

    def finish(self, summary: Mapping[str, Any]) -> str:
        if self._run is None:
            return ""
        self._run.summary.update(dict(summary))
        where = self._run.url or f"offline in {self._run.dir.removesuffix('/files')}; wandb sync sends it"
        self._run.finish()
        self._run = None
        return str(where)
