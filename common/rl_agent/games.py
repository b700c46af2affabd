"""
The games of B environments: scores, and the numbers that an environment gives with the last step of a game in
`info["metrics"]` and `info["is_success"]`.

`info` may hold anything: everything but finite numbers under plain names is ignored, and the log names the first.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ps_common.meters import RollingMean
from ps_common.program.reasons import reason_of
from ps_common.protocol.messages import Episode
from ps_common.protocol.names import is_name

METRICS, SUCCESS = "metrics", "is_success"  # keys of info
MOST_METRICS = 16  # names of one worker
LONGEST_METRIC = 60  # characters of a name
MOST_METRIC = 1e30  # either way
GAMES_IN_MEAN = 100
Metrics = Mapping[str, float]  # of one game

log = logging.getLogger("rl-worker")


class MetricsReader:
    """Reads the metrics of games from the last `info` of each. No content of it raises."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._has_warned = False

    def read(self, info: Any) -> Metrics:
        """The metrics of a game, of its last `info`."""
        metrics: dict[str, float] = {}
        try:
            for name, value in _given(info):
                try:
                    number = _number(value)
                    metrics[self._checked(name)] = number
                except Exception as error:
                    self._leave_out(f": {ascii(name)[:100]}", error)
        except Exception as error:  # of a class of the user
            self._leave_out("", error)
        return metrics

    def read_rows(self, infos: Any, rows: Iterable[int]) -> dict[int, Metrics]:
        """The metrics of games by their row: of `final_info` of a vector environment, as Gymnasium stacks it."""
        try:
            keys = (METRICS, SUCCESS, f"_{METRICS}", f"_{SUCCESS}")
            stacked = {key: infos[key] for key in keys if key in infos} if isinstance(infos, Mapping) else {}
            return {row: self.read(info_of_row(stacked, row)) for row in rows} if stacked else {}
        except Exception as error:
            self._leave_out("", error)
            return {}

    def _checked(self, name: Any) -> str:
        """A name that is one. Raises ValueError."""
        if not isinstance(name, str) or len(name) > LONGEST_METRIC or not is_name(name):
            rule = f"letters, digits and _.:@/+-, and begins with a letter or digit, 1 to {LONGEST_METRIC} characters"
            raise ValueError(f"a name has {rule}")
        if len(self._names | {name}) > MOST_METRICS:
            raise ValueError(f"there are {MOST_METRICS} names already")
        self._names.add(name)
        return name

    def _leave_out(self, what: str, error: Exception) -> None:
        if not self._has_warned:
            log.warning(
                'info["%s"]%s is left out: %s; whatever follows is left out in silence', METRICS, what, reason_of(error)
            )
        self._has_warned = True


def _number(value: Any) -> float:
    """Of Python, numpy or torch. Raises ValueError, and what classes of the user raise."""
    value = value.item() if callable(getattr(value, "item", None)) else value
    if not isinstance(value, bool | int | float) or not -MOST_METRIC <= value <= MOST_METRIC:
        raise ValueError(f"{ascii(value)[:100]} is no number within ±{MOST_METRIC:g}")
    return float(value)


def _given(info: Any) -> Iterator[tuple[Any, Any]]:
    """The names and values of an info, of however many there are some more than may be."""
    if not isinstance(info, Mapping):
        return
    if (metrics := info.get(METRICS)) is not None:
        yield from islice(metrics.items(), MOST_METRICS + 1)
    if (success := info.get(SUCCESS)) is not None:
        yield SUCCESS, success


def info_of_row(stacked: Mapping[str, Any], row: int) -> dict[str, Any]:
    """The info of one environment. Each array NAME comes with _NAME, the mask of the environments that have it."""
    return {
        name: info_of_row(values, row) if isinstance(values, Mapping) else values[row]
        for name, values in islice(stacked.items(), 4 * MOST_METRICS)
        if not name.startswith("_") and ((mask := stacked.get(f"_{name}")) is None or mask[row])
    }


class Games:
    """The games of B environments: those in progress, and those that ended since they were taken."""

    def __init__(self, count: int) -> None:
        self.returns = np.zeros(count)  # of the games in progress
        self.lengths = np.zeros(count, dtype=np.int64)
        self._ended: list[tuple[int, Episode, Metrics]] = []  # each with the steps of the unroll until its end
        self._means: dict[str, RollingMean] = {}  # of the metrics of the newest games that were taken

    @property
    def metrics(self) -> dict[str, float]:
        """The mean of each metric over the newest games that were taken, as the names of meters."""
        return {f"{METRICS}/{name}": rolling.mean for name, rolling in self._means.items()}

    def stepped(
        self,
        t: int,
        rewards: NDArray[np.float32],
        ended: NDArray[np.bool_],
        metrics: Mapping[int, Metrics],
        *,
        failed: NDArray[np.bool_] | None = None,
    ) -> None:
        """Step `t` of the unroll; `metrics` of games that ended, by row. Games that failed do not count."""
        self.returns += rewards
        self.lengths += 1
        for row in np.flatnonzero(ended):
            if failed is None or not failed[row]:
                episode = Episode(float(self.returns[row]), int(self.lengths[row]))
                self._ended.append((t + 1, episode, metrics.get(int(row), {})))
            self.returns[row], self.lengths[row] = 0.0, 0

    def take(self) -> list[tuple[int, Episode]]:
        """The games that ended since the last call."""
        ended, self._ended = self._ended, []
        for _, _, metrics in ended:
            for name, value in metrics.items():
                self._means.setdefault(name, RollingMean(GAMES_IN_MEAN)).add(value)
        return [(t, episode) for t, episode, _ in ended]
