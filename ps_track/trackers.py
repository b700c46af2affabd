"""The experiment trackers: one class each, which imports the tracker's package when a run begins there."""

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ps_common.run_folder.run_rows import EventRow
from ps_common.run_folder.trackers import TrackerName
from ps_track.feed import Point

PROJECT = "ps-rl"  # a run of an experiment belongs to that experiment's group
RUN_ID = "ps_rl.run_id"  # the tag by which a resumed run is found at MLflow
MOST_METRICS = 500  # of one request; MLflow takes 1000
MOST_PARAMS = 100  # of one request, which is all that MLflow takes


@dataclass(frozen=True)
class TrackedRun:
    """The run, as a tracker names it. A resumed run, and one whose standby was promoted, has the same `run_id`."""

    run_id: str
    name: str
    experiment: str
    folder: Path
    settings: Mapping[str, Any]  # flat: {"algorithm.unroll_length": 20}


class Tracker(Protocol):
    """One run at one tracker. Every method may raise what the tracker's package raises."""

    def __init__(self, run: TrackedRun) -> None:
        """Begin the run, or go on with it."""

    def add(self, points: Sequence[Point], events: Sequence[EventRow], *, first: int) -> None:
        """Send points, numbered from `first` on, and events."""

    def finish(self, summary: Mapping[str, Any]) -> str:
        """The run is over for now. Returns where it is to be found."""


class WandbRun:
    """
    Weights & Biases: T is the axis of every chart. Warnings and the end are alerts; an adjustment changes the config.
    WANDB_MODE=offline keeps the run in RUN_DIR/wandb, for `wandb sync`.
    """

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._run: Any = wandb.init(
            project=PROJECT,
            id=run.run_id,
            name=run.name,
            group=run.experiment or None,
            dir=run.folder,
            resume="allow",
            settings=wandb.Settings(console="off", x_disable_stats=True, disable_git=True, save_code=False),
        )
        self._run.config.update(dict(run.settings), allow_val_change=True)  # type: ignore[no-untyped-call]
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
        self._run.summary.update(dict(summary))
        where = self._run.url or f"offline in {self._run.dir.removesuffix('/files')}; wandb sync sends it"
        self._run.finish(exit_code=1 if "failed" in summary else None)
        return str(where)


class MlflowRun:
    """
    MLflow, in ./mlflow.db, or where MLFLOW_TRACKING_URI says: settings are parameters, T is the step, events and the
    result are tags and `final_` metrics.
    """

    def __init__(self, run: TrackedRun) -> None:
        import mlflow

        self._entities = mlflow.entities
        self._client = client = mlflow.MlflowClient()
        self._newest = (0, 0)  # T, and milliseconds since 1970
        name = run.experiment or PROJECT
        known = client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else client.create_experiment(name)
        found = client.search_runs([experiment], f"tags.`{RUN_ID}` = '{run.run_id}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            client.update_run(self._run, status="RUNNING")
        else:
            self._run = client.create_run(experiment, run_name=run.name, tags={RUN_ID: run.run_id}).info.run_id
        known_params = found[0].data.params if found else {}
        new = [mlflow.entities.Param(key, str(value)) for key, value in run.settings.items() if key not in known_params]
        for first in range(0, len(new), MOST_PARAMS):
            client.log_batch(self._run, params=new[first : first + MOST_PARAMS])
        # A parameter never changes; a setting that a resume has changed is a tag.
        changed = {key: value for key, value in run.settings.items() if known_params.get(key, str(value)) != str(value)}
        self._tag({f"changed.{key}": str(value) for key, value in changed.items()})

    def add(self, points: Sequence[Point], events: Sequence[EventRow], *, first: int) -> None:
        metrics = []
        for point in points:
            self._newest = (point.global_steps, int(point.time * 1000))
            metrics += self._metrics(point.values)
        for at in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run, metrics=metrics[at : at + MOST_METRICS])
        kept = [event for event in events if event.kind in ("warning", "adjustment", "end")]
        names = [f"{event.kind}.{event.epoch}.{event.number}" for event in kept]
        self._tag({name: f"T {event.global_steps}: {event.text}" for name, event in zip(names, kept, strict=True)})

    def finish(self, summary: Mapping[str, Any]) -> str:
        texts = {name: value for name, value in summary.items() if isinstance(value, str)}
        final = {f"final_{name}": value for name, value in summary.items() if name not in texts}
        self._client.log_batch(self._run, metrics=self._metrics(final))
        self._tag(texts)
        status = "FAILED" if "failed" in summary else "FINISHED" if "ending" in summary else "KILLED"
        self._client.set_terminated(self._run, status)
        return f"run {self._run} at {self._client.tracking_uri}"

    def _metrics(self, values: Mapping[str, float]) -> list[Any]:
        """The numbers at the newest T."""
        steps, milliseconds = self._newest
        return [self._entities.Metric(_path(name), float(value), milliseconds, steps) for name, value in values.items()]

    def _tag(self, texts: Mapping[str, str]) -> None:
        self._client.log_batch(self._run, tags=[self._entities.RunTag(name, text) for name, text in texts.items()])


def _path(name: str) -> str:
    """The name of a curve as MLflow takes it: no path with a shorter form, and few signs. Else it refuses the batch."""
    return posixpath.normpath("/" + re.sub(r"[^\w./ -]", "_", name))[1:] or "_"


TRACKERS: dict[TrackerName, type[Tracker]] = {"wandb": WandbRun, "mlflow": MlflowRun}
