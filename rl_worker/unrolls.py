"""The unrolls that a worker learns from, one after another, or one ahead: collected while the last is learned from."""

from threading import Thread

from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.rollouts import EndedEpisodes, RolloutCollector, Trajectory

INTERRUPT_SECONDS = 2.0  # for an unroll that nobody wants any more to end


class Unrolls:
    """The unrolls of a collector, one after another; or the next one in a thread, while the last is learned from."""

    def __init__(self, collector: RolloutCollector, algorithm: Algorithm) -> None:
        self._collector, self._algorithm = collector, algorithm
        self._running: UnrollInThread | None = None

    def next(self, global_steps: int) -> tuple[Trajectory, EndedEpisodes]:
        """The next unroll, and the episodes that ended in it. `global_steps` is T."""
        if not self._algorithm.learns_while_acting:
            self._algorithm.begin_unroll(global_steps)
            return self._collector.collect(), self._collector.take_episodes()
        running = self._running or self._start(global_steps)
        trajectory, ended = running.result(), self._collector.take_episodes()
        self._running = self._start(global_steps)
        return trajectory, ended

    def close(self) -> None:
        """End the unroll that is being collected: nobody wants it any more."""
        if self._running is not None:
            self._collector.interrupt()
            self._running.join(INTERRUPT_SECONDS)

    def _start(self, global_steps: int) -> "UnrollInThread":
        self._algorithm.begin_unroll(global_steps)
        running = UnrollInThread(self._collector)
        running.start()
        return running


class UnrollInThread(Thread):
    """Collects one unroll. The thread does not keep a process alive whose environment hangs."""

    def __init__(self, collector: RolloutCollector) -> None:
        super().__init__(name="unroll", daemon=True)
        self._collector = collector
        self._unroll: Trajectory | BaseException | None = None

    def run(self) -> None:
        try:
            self._unroll = self._collector.collect()
        except BaseException as error:  # for the thread that waits
            self._unroll = error

    def result(self) -> Trajectory:
        """Wait for the unroll. Raises what the collector has raised."""
        self.join()
        if isinstance(self._unroll, BaseException):
            raise self._unroll
        assert self._unroll is not None, "it was joined"
        return self._unroll
