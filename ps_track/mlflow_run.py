"""A run at MLflow: in ./mlflow.db, or where MLFLOW_TRACKING_URI says."""

from collections.abc import Mapping, Sequence
from typing import Any

from mlflow.entities import Metric, Param, RunTag
from mlflow.tracking import MlflowClient

from ps_common.run_folder.run_rows import EventRow
from ps_track.feed import PROJECT, Point, TrackedRun

RUN_ID = "ps_rl.run_id"  # the tag by which a resumed run is found
MOST_METRICS = 500  # of one request; MLflow takes 1000
MOST_PARAMS = 100  # likewise


class MlflowRun:
    """Settings are parameters, T is the step, events and the result are tags and `final_` metrics."""

    def __init__(self) -> None:
        self._client = MlflowClient()
        self._run = ""
        self._newest = (0, 0)  # T, and milliseconds since 1970

    def begin(self, run: TrackedRun) -> None:
        name = run.experiment or PROJECT
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        found = self._client.search_runs([experiment], f"tags.`{RUN_ID}` = '{run.run_id}'", max_results=1)
        if found:
            self._run = found[0].info.run_id
            self._client.update_run(self._run, status="RUNNING")
        else:
            self._run = self._client.create_run(experiment, run_name=run.name, tags={RUN_ID: run.run_id}).info.run_id
        known_params = found[0].data.params if found else {}
        new = [Param(key, str(value)) for key, value in run.settings.items() if key not in known_params]
        for first in range(0, len(new), MOST_PARAMS):
            self._client.log_batch(self._run, params=new[first : first + MOST_PARAMS])
        # A parameter never changes; a setting that a resume has changed is a tag.
        changed = {key: value for key, value in run.settings.items() if known_params.get(key, str(value)) != str(value)}
        self._client.log_batch(self._run, tags=[RunTag(f"changed.{key}", str(value)) for key, value in changed.items()])

    def add(self, points: Sequence[Point], events: Sequence[EventRow], *, first: int) -> None:
        metrics = []
        for point in points:
            self._newest = (point.global_steps, int(point.time * 1000))
            metrics += [
                Metric(name, float(value), self._newest[1], point.global_steps) for name, value in point.values.items()
            ]
        for at in range(0, len(metrics), MOST_METRICS):
            self._client.log_batch(self._run, metrics=metrics[at : at + MOST_METRICS])
        tags = [
            RunTag(f"{event.kind}.{event.epoch}.{event.number}", f"T {event.global_steps}: {event.text}")
            for event in events
            if event.kind in ("warning", "adjustment", "end")
        ]
        self._client.log_batch(self._run, tags=tags)

    def finish(self, summary: Mapping[str, Any]) -> str:
        if not self._run:
            return ""
        steps, milliseconds = self._newest
        numbers = {name: value for name, value in summary.items() if not isinstance(value, str)}
        texts = [RunTag(name, value) for name, value in summary.items() if isinstance(value, str)]
        final = [Metric(f"final_{name}", float(value), milliseconds, steps) for name, value in numbers.items()]
        self._client.log_batch(self._run, metrics=final, tags=texts)
        self._client.set_terminated(self._run, "FINISHED" if "ending" in summary else "KILLED")
        where, self._run = f"run {self._run} at {self._client.tracking_uri}", ""
        return where
