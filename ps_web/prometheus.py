"""
The status of runs as Prometheus reads it: base units. What a server has counted since it started is a counter. Totals
of a run are gauges: where it is resumed, they go back to its checkpoint, and a counter would seem to begin at zero.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeHistogramMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ps_common.protocol.status import STALENESS_BOUNDS, Status

LABELS = ["run", "environment", "preset"]

Value = Callable[[Status], float | None]

GAUGES: dict[str, tuple[str, Value]] = {
    "ps_rl_up": ("Whether the server of the run answers.", lambda status: 1.0),
    "ps_rl_workers": ("Workers whose lease is running.", lambda status: status.workers_alive),
    "ps_rl_workers_stalled": (
        "Workers whose lease is running and whose trainer makes no step.",
        lambda status: sum(worker.alive and worker.stalled for worker in status.workers),
    ),
    "ps_rl_environments": (
        "Environments of the workers whose lease is running.",
        lambda status: sum(worker.environments for worker in status.workers if worker.alive),
    ),
    "ps_rl_paused": ("Whether the run is paused.", lambda status: float(status.paused)),
    "ps_rl_draining": ("Whether workers are asked to leave, by ps-ctl drain.", lambda status: float(status.drained)),
    "ps_rl_epoch": (
        "A number of this life of the server, by random steps larger than those of earlier ones.",
        lambda status: status.epoch,
    ),
    "ps_rl_environment_steps": ("Environment steps of all workers, T.", lambda status: status.global_steps),
    "ps_rl_updates": ("Gradients applied.", lambda status: status.updates),
    "ps_rl_episodes": ("Episodes reported.", lambda status: status.episodes),
    "ps_rl_training_seconds": ("Time of training.", lambda status: 60 * status.minutes),
    "ps_rl_mean_return": ("Mean return of the last 100 episodes.", lambda status: status.mean_return_100),
    "ps_rl_best_mean_return": ("Highest mean return of 100 episodes.", lambda status: status.best_mean_return_100),
    "ps_rl_evaluation_return": ("Mean return of the newest evaluation.", lambda status: status.evaluation),
    "ps_rl_best_evaluation_return": ("Highest mean return of an evaluation.", lambda status: status.best_evaluation),
    "ps_rl_target_return": ("Mean return at which the run ends.", lambda status: status.until_return),
    "ps_rl_steps_per_second": ("Environment steps a second, recent.", lambda status: status.steps_per_second),
    "ps_rl_updates_per_second": ("Updates a second, recent.", lambda status: status.updates_per_second),
    "ps_rl_staleness_updates": ("Mean staleness of recent pushes in updates.", lambda status: status.staleness_recent),
    "ps_rl_gradient_norm": ("Mean norm of recent gradients.", lambda status: status.gradient_norm),
    "ps_rl_learning_rate": ("Learning rate of the next update.", lambda status: status.learning_rate),
    "ps_rl_checkpoint_version": ("Version of the newest checkpoint.", lambda status: status.checkpoint_version),
    "ps_rl_checkpoint_age_seconds": (
        "Time since the moment that the newest checkpoint of this server holds.",
        lambda status: status.checkpoint_age_seconds,
    ),
    "ps_rl_weights_version": ("Version of the weights.", lambda status: status.version),
    "ps_rl_connections": ("Connections of the server's port.", lambda status: status.connections),
    "ps_rl_memory_bytes": ("Resident memory of the server.", lambda status: status.memory_bytes),
    "ps_rl_standby": ("Whether a standby follows.", lambda status: float(_follows(status))),
    "ps_rl_standby_lag_seconds": (
        "Age of the oldest update that the standby lacks.",
        lambda status: status.standby.lag_seconds if status.standby else None,
    ),
}
COUNTERS: dict[str, tuple[str, Callable[[Status], float]]] = {
    "ps_rl_standby_drops": (
        "Standbys that were dropped, being too slow.",
        lambda status: status.standby.drops if status.standby else 0,
    ),
    "ps_rl_duplicates": ("Pushes that had been settled before.", lambda status: status.duplicates),
    "ps_rl_snapshots": ("Copies of the weights that were made to send them.", lambda status: status.snapshots),
    "ps_rl_not_modified": ("Pulls by workers that had the newest weights.", lambda status: status.not_modified),
    "ps_rl_checkpoint_failures": ("Checkpoints that could not be written.", lambda status: status.checkpoint_failures),
}


def _follows(status: Status) -> bool:
    return status.standby is not None and status.standby.phase not in ("dropped", "gone")


STALENESS = "ps_rl_push_staleness_updates"


class RunsCollector(Collector):
    """The metrics of (name, status) pairs; the status is None of a run whose server does not answer."""

    def __init__(self, runs: Iterable[tuple[str, Status | None]]) -> None:
        self._runs = list(runs)

    def collect(self) -> Iterator[Metric]:
        live = [([name, status.environment, status.preset], status) for name, status in self._runs if status]
        for name, (text, value) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=LABELS)
            for labels, status in live:
                if (number := value(status)) is not None:
                    gauge.add_metric(labels, number)
            if name == "ps_rl_up":
                for run in (run for run, status in self._runs if status is None):
                    gauge.add_metric([run, "", ""], 0.0)
            yield gauge
        for name, (text, value) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=LABELS)
            for labels, status in live:
                counter.add_metric(labels, value(status))
            yield counter
        yield _staleness(live)
        refused = CounterMetricFamily("ps_rl_refused", "Messages refused, by code.", labels=[*LABELS, "code"])
        for labels, status in live:
            for code, count in status.refused.items():
                refused.add_metric([*labels, code], count)
        yield refused


def _staleness(live: Iterable[tuple[list[str], Status]]) -> Metric:
    text = "Staleness of the pushes that were applied, in updates."
    histogram = GaugeHistogramMetricFamily(STALENESS, text, labels=LABELS)
    bounds = [*map(str, map(float, STALENESS_BOUNDS)), "+Inf"]
    for labels, status in live:
        if status.staleness_counts:
            buckets = list(zip(bounds, accumulate(status.staleness_counts), strict=True))
            histogram.add_metric(labels, buckets, round(status.staleness_mean * status.updates))
    return histogram


def exposition(runs: Iterable[tuple[str, Status | None]]) -> bytes:
    """The text that a scrape gets."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunsCollector(runs))
    return generate_latest(registry)
