"""The progress of a run: the step counter T, scores, minutes, and whether the budget or the target is reached."""

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping

from ps_common.meters import RollingMean
from ps_common.protocol.messages import Episode, Evaluation
from ps_common.protocol.names import MOST, MOST_NUMBER
from ps_common.protocol.record import EPISODES_IN_MEAN, ProgressRecord
from ps_common.protocol.status import STALENESS_BOUNDS
from ps_common.settings.run_spec import Budget

MOST_METER_NAMES = 128  # of all workers, while this server lives, without those that each rl-worker may report
OF_EVERY_WORKER = {
    "loss", "policy_loss", "value_loss", "entropy", "entropy_weight", "value", "epsilon", "gradient_norm",
    "weight_norm", "steps_per_second", "collect_share", "learn_share", "server_share",
}  # fmt: skip
# What a checkpoint keeps as it is; it keeps returns, counts of staleness and minutes, too.
KEPT = (
    "global_steps", "updates", "episodes", "best_mean", "best_saved", "staleness_sum", "minutes_to_target",
    "evaluated", "evaluation", "best_evaluation", "saved_evaluation",
)  # fmt: skip


class Progress:
    """
    Counters of one run, through all its epochs. `now` is seconds of any monotonic clock.

    Minutes stand still until `count_minutes` lets them count.

    Invariant: `global_steps` grows by exactly the steps of each applied push, once.
    """

    def __init__(self, *, evaluate_every: int = 0, has_candidates: bool = False) -> None:
        """
        `evaluate_every`: steps between two evaluations, which judge the run; 0: games of training do. `has_candidates`:
        whether checkpoints are written to be evaluated, which cannot be those of a shard alone.
        """
        self.evaluate_every, self.has_candidates = evaluate_every, has_candidates
        self.evaluated = 0  # version of the weights of the newest evaluation
        self.evaluation: float | None = None  # its mean return
        self.best_evaluation: float | None = None
        self.saved_evaluation: float | None = None  # that of the checkpoint that is kept as best
        self.candidate = 0  # version of the newest checkpoint that this server has written to be evaluated
        self.candidate_steps = 0  # its T
        self.global_steps = 0
        self.updates = 0
        self.episodes = 0
        self.best_mean: float | None = None
        self.best_saved: float | None = None  # mean return at the checkpoint that is kept as best
        self.minutes_to_target: float | None = None
        self.staleness_sum = 0
        self.staleness_counts = [0] * (len(STALENESS_BOUNDS) + 1)
        self.recent_staleness = RollingMean(200)
        self.gradient_norm = RollingMean(200)
        self.step_rate = Rate()
        self.update_rate = Rate()
        self._returns: deque[float] = deque(maxlen=EPISODES_IN_MEAN)
        self._running_since: float | None = None  # None while minutes do not count
        self._minutes_before = 0.0

    def update_applied(self, *, steps: int, staleness: int, gradient_norm: float) -> None:
        self.global_steps += steps
        self.updates += 1
        self.staleness_sum = min(self.staleness_sum + staleness, MOST)  # a client may compute on version 0 for ever
        self.staleness_counts[bisect_left(STALENESS_BOUNDS, staleness)] += 1
        self.recent_staleness.add(staleness)
        self.gradient_norm.add(gradient_norm)

    def episode_finished(self, episode: Episode, budget: Budget, *, now: float) -> None:
        """Count a full game that a worker reported."""
        self.episodes += 1
        self._returns.append(episode.episode_return)
        if (mean := self._whole_mean()) is not None:
            self.best_mean = mean if self.best_mean is None else max(self.best_mean, mean)
        self.judge(budget, now=now)

    def judge(self, budget: Budget, *, now: float) -> None:
        """Remember the minute in which the target is first reached."""
        best = self.judged
        if budget.until_return is None or best is None or self.minutes_to_target is not None:
            return
        if best >= budget.until_return:
            self.minutes_to_target = self.minutes(now=now)

    def count_evaluation(self, evaluation: Evaluation, budget: Budget, *, now: float) -> None:
        """Count an evaluation of newer weights than any before."""
        mean = evaluation.mean_return
        self.evaluated, self.evaluation = evaluation.version, mean
        self.best_evaluation = mean if self.best_evaluation is None else max(self.best_evaluation, mean)
        self.judge(budget, now=now)

    def save_as_candidate(self, version: int) -> bool:
        """Whether a checkpoint made now is to be evaluated; if so, no other one is before this one was."""
        if not self.is_candidate_due:
            return False
        self.candidate, self.candidate_steps = version, self.global_steps
        return True

    @property
    def is_candidate_due(self) -> bool:
        """Whether T has passed another multiple of the interval, and the candidate before was evaluated."""
        if not self.has_candidates or self.candidate > self.evaluated:
            return False
        return self.global_steps // self.evaluate_every > self.candidate_steps // self.evaluate_every

    def save_candidate(self) -> bool:
        """Whether the candidate, which was evaluated now, is the best; if so, it counts as the best from now on."""
        if self.evaluation is None or self.evaluated != self.candidate:
            return False
        if self.saved_evaluation is not None and self.evaluation < self.saved_evaluation:
            return False
        self.saved_evaluation = self.evaluation
        return True

    def target_changed(self, budget: Budget, *, now: float) -> None:
        """The target is another from now on; the games so far may have reached it."""
        self.minutes_to_target = None
        self.judge(budget, now=now)

    def tick(self, *, now: float) -> None:
        self.step_rate.mark(self.global_steps, now=now)
        self.update_rate.mark(self.updates, now=now)

    def minutes(self, *, now: float) -> float:
        """Minutes of training, through all epochs."""
        running = 0.0 if self._running_since is None else now - self._running_since
        return self._minutes_before + running / 60

    def count_minutes(self, count: bool, *, now: float) -> None:
        """Whether minutes count from now on."""
        if count == (self._running_since is None):
            self._minutes_before = self.minutes(now=now)
            self._running_since = now if count else None

    def follow_minutes(self, minutes: float) -> None:
        """The minutes that the primary has counted, at its standby, which counts none."""
        self._minutes_before = minutes

    @property
    def judged(self) -> float | None:
        """What is compared with the target: the highest mean of an evaluation, or of a whole 100 games of training."""
        return self.best_evaluation if self.evaluate_every else self.best_mean

    @property
    def reached(self) -> float | None:
        """What a target has to be above: the same, and before the first whole 100 games their mean so far."""
        return self.mean_return if self.judged is None and not self.evaluate_every else self.judged

    @property
    def mean_return(self) -> float | None:
        """Mean of the last 100 full games, of fewer at the beginning; None before the first."""
        return self._mean() if self._returns else None

    @property
    def is_better_than_saved(self) -> bool:
        """Whether the mean over a whole 100 games is above that of the best checkpoint, and decides about it."""
        mean = None if self.has_candidates else self._whole_mean()
        return mean is not None and (self.best_saved is None or mean > self.best_saved)

    def save_as_best(self) -> bool:
        """Whether a checkpoint made now is at least as good as the best; if so, it counts as the best from now on."""
        mean = None if self.has_candidates else self._whole_mean()
        if mean is None or (self.best_saved is not None and mean < self.best_saved):
            return False
        self.best_saved = mean
        return True

    def end_of(self, budget: Budget, *, now: float) -> str:
        """Why the run is over; "" while it is not."""
        if budget.max_steps and self.global_steps >= budget.max_steps:
            return f"max_steps {budget.max_steps} reached"
        if budget.max_episodes and self.episodes >= budget.max_episodes:
            return f"max_episodes {budget.max_episodes} reached"
        if self.minutes_to_target is not None:
            of_what = "an evaluation" if self.evaluate_every else f"the last {EPISODES_IN_MEAN} episodes"
            return f"mean return of {of_what} reached {budget.until_return:g}"
        if budget.max_minutes and self.minutes(now=now) >= budget.max_minutes:
            return f"max_minutes {budget.max_minutes:g} reached"
        return ""

    def record(self, *, now: float) -> ProgressRecord:
        return ProgressRecord(
            **{name: getattr(self, name) for name in KEPT},
            returns=tuple(self._returns),
            staleness_counts=tuple(self.staleness_counts),
            minutes=self.minutes(now=now),
        )

    def restore(self, kept: ProgressRecord) -> None:
        for name in KEPT:
            setattr(self, name, getattr(kept, name))
        self._returns.extend(kept.returns)
        self.staleness_counts = list(kept.staleness_counts)
        self._minutes_before = kept.minutes

    def _whole_mean(self) -> float | None:
        """The mean over a whole 100 games; None before the hundredth."""
        return self._mean() if len(self._returns) == EPISODES_IN_MEAN else None

    def _mean(self) -> float:
        return sum(self._returns) / len(self._returns)


class MeterNames:
    """
    The names of the meters of a run. Any worker may report any name, each a curve: those of every worker count, whoever
    has filled the rest, and the first so many others.

    A value that is not finite, or that no sum of such values would leave so, does not count.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()

    def known(self, meters: Mapping[str, float]) -> dict[str, float]:
        """Those of a report that count."""
        for name in meters.keys() - OF_EVERY_WORKER:
            if len(self._names) < MOST_METER_NAMES:
                self._names.add(name)
        names = meters.keys() & (self._names | OF_EVERY_WORKER)
        return {name: value for name, value in meters.items() if name in names and abs(value) <= MOST_NUMBER}


class Rate:
    """The growth of a counter per second, over about the last `window_seconds`."""

    def __init__(self, window_seconds: float = 10.0) -> None:
        self._window_seconds = window_seconds
        self._marks: deque[tuple[float, float]] = deque()  # (now, counter), at most a few a second

    def mark(self, counter: float, *, now: float) -> None:
        while self._marks and now - self._marks[0][0] > self._window_seconds:
            self._marks.popleft()
        self._marks.append((now, counter))

    def per_second(self, counter: float, *, now: float) -> float:
        """The rate from the oldest mark in the window to `counter` at `now`; 0 without one."""
        if not self._marks or now <= self._marks[0][0]:
            return 0.0
        then, before = self._marks[0]
        return (counter - before) / (now - then)
