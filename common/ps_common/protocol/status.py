"""The status of a run, as one immutable value: ps-ctl prints it, metrics.jsonl keeps it, the progress line shows it."""

from typing import Annotated

import msgspec

from ps_common.protocol.lineage import WHOLE, Shard
from ps_common.protocol.names import Count, Minutes, Name, Number, Sentence, Signed, Text

# The histogram of staleness: each count is of the updates up to a bound and above the one before; the last count is of
# those above all bounds.
STALENESS_BOUNDS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 256)

MOST_METERS = 32  # of one worker
STANDBY_PHASE = "standby"  # of a server that follows another one, until it is promoted

Histogram = Annotated[tuple[Count, ...], msgspec.Meta(max_length=len(STALENESS_BOUNDS) + 1)]
AdjustedValue = bool | Signed | Number | tuple[Number, ...] | None


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, alive or not."""

    worker_id: Name
    number: Count
    host: Text
    environments: Count
    alive: bool
    left: bool = False  # not alive because it said goodbye
    stalled: bool = False  # alive, but without a step for much longer than ever before
    silent_seconds: Number  # since its last message
    pushes: Count  # applied
    discarded: Count
    refused: dict[Name, Count] = {}  # by code; discarded pushes too
    refusal: Text = ""  # the reason of the newest; "" without any
    steps: Count  # environment steps counted into T
    staleness: Number  # mean over its newest pushes
    meters: Annotated[dict[Name, Number], msgspec.Meta(max_length=MOST_METERS)]  # the newest it reported
    release: Text = ""  # of its program; "" where it does not say


def speed_of(worker: WorkerStatus) -> float:
    """Environment steps a second, as reported last; 0 if the worker is gone or stalled."""
    return worker.meters.get("steps_per_second", 0.0) if worker.alive and not worker.stalled else 0.0


class StandbyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The standby of this server, or the last that it had."""

    address: Text  # HOST:PORT
    phase: Text  # "state transfer", "catching up", "in sync"; "dropped": too slow; "gone": silent
    lag_updates: Count = 0  # sent or to be sent, and not acknowledged
    lag_bytes: Count = 0  # of the updates that are not acknowledged
    lag_seconds: Number = 0.0  # the age of the oldest
    drops: Count = 0  # of standbys
    release: Text = ""  # of its program


class Adjustment(msgspec.Struct, frozen=True, kw_only=True):
    """One setting that was changed while the run ran."""

    setting: Name  # dotted: schedule.learning_rate
    before: AdjustedValue  # its value at that moment
    after: AdjustedValue
    by: Text  # who
    global_steps: Count  # T
    minutes: Minutes  # of training


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The run at one moment. Rates are over about the last ten seconds."""

    phase: Name
    release: Text = ""  # of the server's program
    run_id: Text = ""  # "" at a standby that follows no run yet
    epoch: Count
    shard: Shard = WHOLE  # the place of this server among the shards of the run
    preset: Text = ""
    experiment: Text = ""
    environment: Text = ""  # its id
    frames_per_step: Count = 1
    max_steps: Count = 0  # of the budget; 0: no limit
    max_episodes: Count = 0  # of the budget; 0: no limit
    max_minutes: Minutes = 0.0
    until_return: Number | None = None  # the target of the budget; None: none
    evaluate_every: Count = 0  # of the records: where it is not 0, evaluations decide about the target and the best
    ending: Sentence = ""  # why the run is over; "" before
    failed: bool = False  # whether it is over because something in it went wrong
    paused: bool = False  # pushes wait, and minutes do not count
    drained: bool = False  # workers leave and no others are admitted; minutes do not count
    version: Count = 0
    parameters: Count = 0  # that this server holds
    snapshots: Count = 0  # copies that were made of the weights to send them
    global_steps: Count = 0  # T
    updates: Count = 0  # gradients applied, in all epochs of the run
    minutes: Minutes = 0.0  # of training, in all epochs of the run
    steps_per_second: Number = 0.0
    updates_per_second: Number = 0.0
    learning_rate: Number = 0.0
    episodes: Count = 0
    mean_return_100: Number | None = None  # of the last 100 full games, or of fewer at first; None before the first
    best_mean_return_100: Number | None = None  # the highest mean of a whole 100
    minutes_to_target: Number | None = None  # when mean_return_100, or an evaluation, first reached until_return
    evaluation: Number | None = None  # mean return of the newest evaluation; None before the first
    best_evaluation: Number | None = None  # the highest mean return of an evaluation
    staleness_mean: Number = 0.0  # over all pushes
    staleness_recent: Number = 0.0
    staleness_counts: Histogram = ()  # the histogram over all pushes, by STALENESS_BOUNDS
    gradient_norm: Number = 0.0  # mean over the newest pushes
    duplicates: Count = 0
    refused: dict[Name, Count]  # by code; discarded pushes too
    not_modified: Count
    checkpoint_version: Count  # of the newest completed checkpoint
    checkpoint_age_seconds: Number | None = None  # since the moment of its content; None: an earlier server wrote it
    checkpoint_failures: Count
    checkpoint_error: Sentence = ""  # why the newest one could not be written; "" where it was
    standby: StandbyStatus | None = None  # None: none has followed this server
    workers_alive: Count
    connections: Count = 0  # of the server's port, of whomever; 0 where they are not counted
    memory_bytes: Count = 0  # resident, of the server's process; 0 where unknown
    memory_peak_bytes: Count = 0  # the most so far
    checkpoint_seconds: Number = 0.0  # between two checkpoints
    settings_version: Count = 0  # of the run's settings: one more with each adjustment
    adjustments: tuple[Adjustment, ...] = ()  # the newest, in order
    workers: tuple[WorkerStatus, ...] = ()  # up to 200, the living first

    def __post_init__(self) -> None:
        check_histogram(self.staleness_counts)


def check_histogram(counts: Histogram) -> None:
    """Raises ValueError unless it is empty, or has a count for each bound and one above all."""
    if len(counts) not in (0, len(STALENESS_BOUNDS) + 1):
        raise ValueError(f"the histogram of staleness has {len(STALENESS_BOUNDS) + 1} counts, not {len(counts)}")


def mean_meters(status: Status) -> dict[str, float]:
    """The mean of each meter over the living workers."""
    values: dict[str, list[float]] = {}
    for worker in status.workers:
        for name, value in worker.meters.items() if worker.alive else ():
            values.setdefault(name, []).append(value)
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


def how_it_ended(status: Status) -> str:
    """How the run ended, with its final numbers. A target that was reached in training is no score of new games."""
    reached = status.minutes_to_target
    minutes = status.minutes if reached is None else reached
    took = f"after {minutes:.1f} minutes and {status.global_steps:,} steps"
    if status.failed:
        return f"failed {took}: {status.ending}"
    if reached is not None and status.until_return is not None:
        of_games = "in training {}, as the mean return of the last 100 games"
        where = "in games of evaluation {}" if status.evaluate_every else of_games
        return f"reached {status.until_return:g} {where.format(took)}"
    if status.evaluate_every and status.best_evaluation is not None:
        return f"over {took} ({status.ending or 'the server ended'}): best evaluation {status.best_evaluation:.2f}"
    best = status.best_mean_return_100
    came_to = "there were no 100 games yet" if best is None else f"the best mean return of 100 games was {best:.2f}"
    target = "" if status.until_return is None else f", the target {status.until_return:g}"
    return f"over {took} ({status.ending or 'the server ended'}): {came_to}{target}"
