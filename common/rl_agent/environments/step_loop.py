"""
B single environments in one process, stepped one after another, or side by side in a thread each.

The loop takes the observation, the reward, the two flags, the action mask and the metrics of a game, and copies them at
once. An environment may reuse its arrays, and its `info` may hold anything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
from numpy.typing import NDArray

from rl_agent.environments.failures import FailureCount, NumberCheck
from rl_agent.environments.forgiving import FAILURES
from rl_agent.environments.interface import Stepped, seed_or_any
from rl_agent.environments.spaces import Observations, ObservationSpace
from rl_agent.games import Metrics, MetricsReader


class Read(Protocol):
    """The array of an observation; it may be a view of what the environment shows."""

    def __call__(self, observation: Any, info: Any, *, is_last: bool = False) -> NDArray[Any]: ...


class _Ended(NamedTuple):
    """The end of a game: its last observation, the metrics and the info of its last step, and the info of the reset."""

    last: NDArray[Any]
    metrics: Metrics
    info: Any
    first_info: Any


class StepLoop:
    """Environments, each with how its observations are read, which are arrays of one shape and type."""

    def __init__(
        self,
        games: Sequence[tuple[gymnasium.Env[Any, Any], Read]],
        space: ObservationSpace,
        *,
        name: str,
        failures: FailureCount | None = None,
        in_threads: bool = False,
    ) -> None:
        """`failures` counts failed games; None: a failure is an error. `in_threads`: each has a thread of its own."""
        self.games = games
        self._failures = failures
        self._metrics = MetricsReader()
        self._numbers = NumberCheck(name, space, failures, begin=self._begin)
        self._shape, self._dtype = (len(games), *space.shape), space.dtype
        # One thread for each environment: a simulator may tolerate no other than the one that it began in.
        self._threads = [ThreadPoolExecutor(1, f"environment-{row}") for row in range(len(games) if in_threads else 0)]

    def reset(self, seed: int | None) -> Observations:
        """Environment k is seeded with seed + k."""
        first = seed_or_any(seed)
        observations = np.empty(self._shape, self._dtype)

        def reset(row: int) -> Any:
            environment, read = self.games[row]
            seen, info = environment.reset(seed=first + row)
            observations[row] = read(seen, info)
            return info

        for row, info in enumerate(self._each(reset)):
            self._note_failures(row, info)
        return self._numbers.first(observations)

    def step(self, actions: Iterable[Any]) -> Stepped:
        """Step each environment with its action, and reset those whose game ends."""
        count, taken = len(self.games), list(actions)
        observations = np.empty(self._shape, self._dtype)
        rewards, (terminated, truncated) = np.empty(count, np.float32), np.empty((2, count), np.bool_)

        def step(row: int) -> _Ended | None:
            environment, read = self.games[row]
            # An ellipsis lets an array that holds one number pass for the number.
            seen, rewards[row, ...], terminated[row, ...], truncated[row, ...], info = environment.step(taken[row])
            if not (terminated[row] or truncated[row]):
                observations[row] = read(seen, info)
                return None
            # An environment may change in reset() what it has shown.
            last, metrics = np.array(read(seen, info, is_last=True), self._dtype), self._metrics.read(info)
            seen, first_info = environment.reset()
            observations[row] = read(seen, first_info)
            return _Ended(last, metrics, info, first_info)

        ends = {row: ended for row, ended in enumerate(self._each(step)) if ended is not None}
        final, has_failed = None, np.zeros(count, np.bool_)
        if ends:
            final = np.zeros_like(observations)
            for row, ended in ends.items():
                final[row] = ended.last
        if self._failures is not None:
            self._failures.ended(len(ends))
            for row, ended in ends.items():
                has_failed[row] = self._note_failures(row, ended.info)
                self._note_failures(row, ended.first_info)
        metrics = {row: ended.metrics for row, ended in ends.items()}
        stepped = Stepped(
            observations, rewards, terminated, truncated, final,
            failed=has_failed if has_failed.any() else None, metrics=metrics,
        )  # fmt: skip
        return self._numbers.step(stepped)

    def close(self) -> None:
        """Close each environment, also after one whose close() raises."""
        with ExitStack() as closing:
            for threads in self._threads:
                closing.callback(threads.shutdown, wait=False)
            for row, (environment, _) in enumerate(self.games):
                closing.callback(self._in_its_thread, row, environment.close)

    def _each(self, call: Callable[[int], Any]) -> Iterable[Any]:
        """The results of a call for each row, in order of the rows."""
        if not self._threads:
            return map(call, range(len(self.games)))
        waiting = [threads.submit(call, row) for row, threads in enumerate(self._threads)]
        return [one.result() for one in waiting]

    def _in_its_thread(self, row: int, call: Callable[[], Any]) -> Any:
        return self._threads[row].submit(call).result() if self._threads else call()

    def _note_failures(self, row: int, info: Any) -> bool:
        """Count the failures that an info tells of; whether there is one. Raises PsRlError when there are too many."""
        sentences = info.get(FAILURES, ()) if isinstance(info, Mapping) and self._failures is not None else ()
        for sentence in sentences:
            assert self._failures is not None
            self._failures.failed(row, sentence)
        return bool(sentences)

    def _begin(self, row: int) -> NDArray[Any]:
        """Reset one environment, whose game was cut off, and read its first observation."""
        environment, read = self.games[row]
        seen, info = self._in_its_thread(row, environment.reset)
        self._note_failures(row, info)
        return read(seen, info)
