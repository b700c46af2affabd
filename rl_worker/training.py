"""
The worker's loop: pull, collect, differentiate, push. All its parts are passed in.

The loop ends when a call raises: RunEnded when the run is over, another PsRlError when the worker cannot go on. It also
ends when the worker is asked to leave: after the unroll in progress is pushed. Either way the games are reported whose
steps were pushed.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from ps_client.shell.newest import Newest
from ps_common.errors import SettingsError
from ps_common.protocol.messages import Episode
from ps_common.protocol.status import MOST_METERS
from ps_common.settings import run_spec
from rl_agent.algorithms.algorithm import Algorithm, Loaded, Loss
from rl_agent.algorithms.custom_algorithm import adjust_custom
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.running_statistics import observe
from rl_agent.rollouts import RolloutCollector, Trajectory
from rl_worker.unrolls import Unrolls

REPORT_SECONDS = 0.5  # least time between two reports

log = logging.getLogger("rl-worker")


class Parameters(Protocol):
    """The weights of a run, wherever they are held."""

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest: ...
    def push_pull(
        self, gradient: Tensor | None, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()
    ) -> Newest: ...
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
    Train until a call raises, or `is_leaving` after an unroll. `adjusted` returns settings that were adjusted since its
    last call. `on_episodes` gets the episodes that ended in an unroll, `on_unroll` the unroll and how meters are read.
    """
    reporter, unrolls = Reporter(parameters, clock), Unrolls(collector, algorithm)
    learner = Learner(parameters, network, algorithm, reporter)
    newest = learner.load(parameters.pull())
    try:
        while not is_leaving():
            _adjust(algorithm, adjusted())
            with reporter.time("collect"):
                trajectory, ended = unrolls.next(began := newest.global_steps)
            newest = learner.prepare(trajectory, newest)
            episodes: list[Episode] = []  # that count: those of an unroll whose steps were counted
            try:
                for pushed in learner.learn(trajectory, newest):
                    newest = pushed.newest
                    if pushed.steps:
                        episodes = ended.between(began, max(newest.global_steps, began + pushed.steps))
                        reporter.played(episodes, steps=pushed.steps)
            finally:
                on_episodes(episodes, newest)
            on_unroll(trajectory, pushed.meters)
            reporter.report(pushed, network, collector)
    finally:
        unrolls.close()
        reporter.report_rest()
    parameters.finish()


def _adjust(algorithm: Algorithm, settings: run_spec.Algorithm | None) -> None:
    if isinstance(settings, run_spec.CustomAlgorithmSettings):
        try:
            adjust_custom(algorithm, settings)
        except SettingsError as error:
            log.warning("%s: this worker continues with the settings that it has", error)
    elif settings is not None:
        algorithm.adjust(settings)


@dataclass(frozen=True)
class Pushed:
    """A push was answered."""

    newest: Newest
    steps: int  # that it has added to T: those of the unroll with its first push, then 0
    loss: Loss | None = None  # None: it had no gradient
    norm: float = 0.0  # of the gradient

    def meters(self) -> dict[str, float]:
        """Reading the values waits for the device."""
        if self.loss is None:
            return {}
        meters = {name: float(value) for name, value in self.loss.meters.items()}
        return meters | {"loss": float(self.loss.total.detach()), "gradient_norm": self.norm}


class Learner:
    """Makes pushes of unrolls, with the newest weights that their replies bring."""

    def __init__(
        self, parameters: Parameters, network: FlatNetwork, algorithm: Algorithm, reporter: "Reporter"
    ) -> None:
        self._parameters, self._network = parameters, network
        self._algorithm, self._reporter = algorithm, reporter
        self._loaded: Newest | None = None
        self._target = Target(parameters, algorithm.target_network)

    def load(self, newest: Newest) -> Newest:
        """Load the weights of a reply, if it has some."""
        if newest.weights is not None:
            self._network.load(newest.weights)
            before, self._loaded = self._loaded, replace(newest, weights=None)
            went_back = before is not None and (
                newest.version < before.version or (newest.epoch == before.epoch and newest.recalls != before.recalls)
            )
            versions = newest.epoch, newest.version, newest.global_steps
            self._algorithm.loaded(Loaded(*versions, workers=newest.workers, went_back=went_back))
        return newest

    def prepare(self, trajectory: Trajectory, newest: Newest) -> Newest:
        """Count its observations and rewards. The version to learn from this unroll with, whose target is there."""
        algorithm = self._algorithm
        if algorithm.learns_with_newest:
            with self._reporter.time("server"):
                newest = self.load(self._parameters.pull(newest))
        observe(algorithm.network, trajectory.observations[:-1], trajectory.rewards, trajectory.continues)
        self._target.refresh(newest)
        return newest

    def learn(self, trajectory: Trajectory, newest: Newest) -> Iterator[Pushed]:
        """Push a gradient of each batch of an unroll; without a batch only its steps."""
        steps, algorithm = trajectory.steps, self._algorithm
        for batch in algorithm.batches(trajectory):
            with self._reporter.time("learn"), self._network.learning():
                loss = algorithm.loss(batch)
                clip, blocks = algorithm.gradient_clip, loss.blocks
                gradient, norm = self._network.gradient_of(loss.total, clip=clip, blocks=blocks)
            newest = self._push(gradient, newest, steps, blocks)
            yield Pushed(newest, steps, loss, norm)
            steps = 0
        if steps:
            newest = self._push(None, newest, steps)
            yield Pushed(newest, steps)

    def _push(self, gradient: Tensor | None, newest: Newest, steps: int, blocks: tuple[str, ...] = ()) -> Newest:
        with self._reporter.time("server"):
            pushed = self._parameters.push_pull(gradient, computed_on=newest, steps=steps, blocks=blocks)
            return self.load(pushed)


class Target:
    """The target network θ⁻, if there is one. Every reply names its version; it is pulled when that has changed."""

    def __init__(self, parameters: Parameters, network: nn.Module | None) -> None:
        self._parameters = parameters
        self._network = None if network is None else FlatNetwork(network)
        self._version = (0, 0)  # epoch and version of the loaded weights

    def refresh(self, newest: Newest) -> None:
        """`newest` is the latest reply of the server."""
        if self._network is not None and (newest.epoch, newest.target_version) != self._version:
            target = self._parameters.pull(target=True)
            if target.weights is not None:
                self._network.load(target.weights)
            self._version = (target.epoch, target.version)


class Reporter:
    """
    Reports scores, losses and shares of time to the server, at most twice a second. The first report follows the first
    unroll, so that a run of half a second has its curves too.
    """

    def __init__(self, parameters: Parameters, clock: Callable[[], float]) -> None:
        self._parameters = parameters
        self._clock = clock
        self._since = clock()
        self._least_seconds = 0.0  # until the next report
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
        if elapsed < self._least_seconds:
            return
        self._least_seconds = REPORT_SECONDS
        meters = pushed.meters()
        meters["weight_norm"] = float(torch.linalg.vector_norm(network.weights[: network.schema.weights]))
        meters["steps_per_second"] = self._steps / elapsed
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
