"""
The worker's loop: pull, collect, differentiate, push. All its parts are passed in.

The loop ends when a call raises: RunEnded when the run is over, another PsRlError when the worker cannot go on. It also
ends when the worker is asked to leave: after the unroll in progress is pushed. Either way the games are reported whose
steps were pushed.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from torch import Tensor, nn

from ps_client.shell.remote_parameters import Newest
from ps_common.errors import SettingsError
from ps_common.protocol.messages import Episode
from ps_common.protocol.status import MOST_METERS
from ps_common.settings import run_spec
from rl_agent.algorithms.algorithm import Algorithm, Loss
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.running_statistics import observe
from rl_agent.rollouts import RolloutCollector, Trajectory

REPORT_SECONDS = 0.5  # least time between two reports


class Parameters(Protocol):
    """The weights of a run, wherever they are held."""

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest: ...
    def push_pull(self, gradient: Tensor, *, computed_on: Newest, steps: int) -> Newest: ...
    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None: ...
    def finish(self) -> None: ...


def train(
    parameters: Parameters,
    network: FlatNetwork,
    collector: RolloutCollector,
    algorithm: Algorithm,
    *,
    on_episodes: Callable[[Sequence[Episode], Newest], None] = lambda _episodes, _newest: None,
    on_unroll: Callable[[Trajectory, Callable[[], dict[str, float]]], None] = lambda _unroll, _meters: None,
    adjusted: Callable[[], run_spec.Algorithm | None] = lambda: None,
    is_leaving: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """
    Train until a call raises, or `is_leaving` after an unroll. `adjusted` returns the algorithm's settings if they were
    adjusted since its last call. After an unroll's last push `on_episodes` gets the episodes that ended in it and the
    newest version, `on_unroll` the unroll and what computes the meters of that push.
    """
    target, reporter = Target(parameters, algorithm.target_network), Reporter(parameters, clock)
    newest = _load_newest(network, parameters.pull())
    try:
        while not is_leaving():
            _adjust(algorithm, adjusted())
            began, episodes = newest.global_steps, list[Episode]()
            trajectory, newest = _collect(parameters, network, collector, algorithm, newest, reporter)
            target.refresh(newest)
            try:
                for pushed in _learn(parameters, network, algorithm, trajectory, newest, reporter):
                    newest = pushed.newest
                    if pushed.steps:
                        span = (began, max(newest.global_steps, began + pushed.steps))
                        episodes = collector.take_episodes(span=span)
                        reporter.played(episodes, steps=pushed.steps)
            finally:
                if episodes:
                    on_episodes(episodes, newest)
            on_unroll(trajectory, pushed.meters)
            reporter.report(pushed, network, collector)
    finally:
        reporter.report_rest()
    parameters.finish()


def _adjust(algorithm: Algorithm, settings: run_spec.Algorithm | None) -> None:
    if settings is not None and not isinstance(settings, run_spec.CustomAlgorithmSettings):  # none is adjustable
        algorithm.adjust(settings)


def _collect(
    parameters: Parameters,
    network: FlatNetwork,
    collector: RolloutCollector,
    algorithm: Algorithm,
    newest: Newest,
    reporter: "Reporter",
) -> tuple[Trajectory, Newest]:
    """The next unroll, and the version to learn with."""
    algorithm.begin_unroll(newest.global_steps)
    with reporter.time("collect"):
        trajectory = collector.collect()
    if algorithm.learns_with_newest:
        with reporter.time("server"):
            newest = _load_newest(network, parameters.pull(newest))
    observed = (trajectory.observations[:-1], trajectory.rewards, trajectory.continues)
    observe(algorithm.network, *observed, follows=not trajectory.follows_dropped)
    return trajectory, newest


@dataclass(frozen=True)
class Pushed:
    """One gradient of an unroll was pushed."""

    newest: Newest
    steps: int  # that it has added to T: those of the unroll with its first push, then 0
    loss: Loss
    norm: float  # of the gradient

    def meters(self) -> dict[str, float]:
        """Reading the values waits for the device."""
        meters = {name: float(value) for name, value in self.loss.meters.items()}
        return meters | {"loss": float(self.loss.total.detach()), "gradient_norm": self.norm}


def _learn(
    parameters: Parameters,
    network: FlatNetwork,
    algorithm: Algorithm,
    trajectory: Trajectory,
    newest: Newest,
    reporter: "Reporter",
) -> Iterator[Pushed]:
    """Push a gradient of each batch of an unroll."""
    steps = trajectory.steps
    for batch in algorithm.batches(trajectory):
        with reporter.time("learn"), network.learning():
            loss = algorithm.loss(batch)
            gradient, norm = network.gradient_of(loss.total, clip=algorithm.gradient_clip)
        with reporter.time("server"):
            newest = _load_newest(network, parameters.push_pull(gradient, computed_on=newest, steps=steps))
        yield Pushed(newest, steps, loss, norm)
        steps = 0
    if steps:
        raise SettingsError(
            f"--algorithm: {type(algorithm).__name__}.batches gave no batch of an unroll; it needs one at least, with "
            "whose push the steps are counted: a loss of 0 teaches nothing"
        )


class Target:
    """The target network θ⁻, if there is one. Every reply names its version; it is pulled when that has changed."""

    def __init__(self, parameters: Parameters, network: nn.Module | None) -> None:
        self._parameters = parameters
        self._network = None if network is None else FlatNetwork(network)
        self._version = (0, 0)  # epoch and version of the loaded weights

    def refresh(self, newest: Newest) -> None:
        """`newest` is the latest reply of the server."""
        if self._network is not None and (newest.epoch, newest.target_version) != self._version:
            target = _load_newest(self._network, self._parameters.pull(target=True))
            self._version = (target.epoch, target.version)


class Reporter:
    """Reports scores, losses and shares of time to the server, at most twice a second."""

    def __init__(self, parameters: Parameters, clock: Callable[[], float]) -> None:
        self._parameters = parameters
        self._clock = clock
        self._since = clock()
        self._seconds = {"collect": 0.0, "learn": 0.0, "server": 0.0}
        self._episodes: list[Episode] = []
        self._steps = 0

    @contextmanager
    def time(self, part: str) -> Iterator[None]:
        """Count the time of this block for `part`."""
        start = self._clock()
        yield
        self._seconds[part] += self._clock() - start

    def played(self, episodes: Sequence[Episode], *, steps: int) -> None:
        """The steps of an unroll were pushed, and these episodes ended in it."""
        self._episodes += episodes
        self._steps += steps

    def report(self, pushed: Pushed, network: FlatNetwork, collector: RolloutCollector) -> None:
        """After each unroll. Shares are of the time since the last report; they need not add up to 1."""
        elapsed = self._clock() - self._since
        if elapsed < REPORT_SECONDS:
            return
        meters = pushed.meters()
        meters["weight_norm"] = float(torch.linalg.vector_norm(network.weights[: network.schema.weights]))
        meters["steps_per_second"] = self._steps / elapsed
        if collector.dropped:
            meters["dropped_unrolls"] = collector.dropped
        meters |= {f"{part}_share": seconds / elapsed for part, seconds in self._seconds.items()}
        meters = dict(islice((meters | collector.metrics).items(), MOST_METERS))
        self._parameters.report(self._episodes, meters)
        self._since += elapsed
        self._seconds = dict.fromkeys(self._seconds, 0.0)
        self._episodes = []
        self._steps = 0

    def report_rest(self) -> None:
        """The trainer leaves: the episodes that wait for the next report are reported now."""
        if self._episodes:
            self._parameters.report(self._episodes, {})


def _load_newest(network: FlatNetwork, newest: Newest) -> Newest:
    if newest.weights is not None:
        network.load(newest.weights)
    return newest
