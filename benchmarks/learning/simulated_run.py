"""
A run of real workers and the real state of a server, in one process, without sockets: the seed decides everything.

Workers take turns of one unroll and its pushes, each in a thread, of which one runs at a time. So a gradient is as
late as with so many parallel workers of equal speed. `delays` makes it later still: a pull brings past weights.
"""

import itertools
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ps_client.shell.newest import Newest
from ps_common.errors import RunEnded
from ps_common.program.resources import flush_denormals
from ps_common.protocol.codecs import NO_GRADIENT
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import Episode, Opened, Push
from ps_common.protocol.tensors import Schema
from ps_common.settings.run_spec import RunSpec
from ps_server.state.training_run import TrainingRun
from rl_agent.agent import build_agent, collector_for
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.normalization import measure_normalization
from rl_agent.random_numbers import drawing_apart
from rl_worker.training import train

OnUnroll = Callable[[Sequence[Episode], int, Tensor], None]  # the episodes that ended in it, T, the newest weights


class SimulatedRun:
    """A run with `workers` workers. `delays`: the versions by which a pull may be late, one drawn for each pull."""

    def __init__(
        self, spec: RunSpec, *, workers: int = 1, delays: Sequence[int] = (0,), on_unroll: OnUnroll | None = None
    ) -> None:
        self.run = TrainingRun(spec, Lineage.begun("1", secret="s", draw=0))
        self._spec = spec
        self._on_unroll = on_unroll
        self._delays = delays
        self._random = random.Random(spec.seed)
        self._past: deque[tuple[int, Tensor]] = deque(maxlen=max(delays) + 1)  # versions and weights, oldest first
        self._error: Exception | None = None
        self._turns = [threading.Semaphore(0) for _ in range(workers)]

    def to_the_end(self) -> None:
        """Train until the budget of the run is spent."""
        self._turns[0].release()
        threads = [threading.Thread(target=self._work, args=(number,)) for number in range(len(self._turns))]
        with drawing_apart(self._spec.seed or 0):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if self._error is not None:
            raise self._error

    def newest(self, *, target: bool = False) -> Newest:
        """The weights that a pull brings now."""
        store, steps = self.run.weights, self.run.progress.global_steps
        if target:
            return Newest(self.run.epoch, store.version, steps, store.target_version, store.target.clone())
        if not self._past or self._past[-1][0] != store.version:
            self._past.append((store.version, store.flat.clone()))
        late = min(self._random.choice(self._delays), len(self._past) - 1)
        version, weights = self._past[-1 - late]
        return Newest(self.run.epoch, version, steps, store.target_version, weights)

    def settle(self, worker: str, push: Push, gradient: Tensor | None) -> None:
        """Apply a push."""
        vector = [] if gradient is None else [gradient.numpy().data.cast("B")]
        self.run.settle([(worker, push, vector)])

    def finished(self, episodes: Sequence[Episode]) -> None:
        """Count the games that a worker has finished."""
        for episode in episodes:
            self.run.progress.episode_finished(episode, self._spec.budget, now=0.0)
        if self._on_unroll is not None:
            self._on_unroll(episodes, self.run.progress.global_steps, self.run.weights.flat)

    def next_turn(self, worker: int) -> None:
        """Let the other workers have their turns first. Raises RunEnded when the budget is spent."""
        self._turns[(worker + 1) % len(self._turns)].release()
        self._turns[worker].acquire()
        if self.run.end_reason(now=0.0):
            raise RunEnded("the budget is spent")

    def _work(self, worker: int) -> None:
        flush_denormals()
        self._turns[worker].acquire()
        try:
            self._train(worker)
        except RunEnded:
            pass
        except Exception as error:
            self._error = error
            raise
        finally:
            self._turns[(worker + 1) % len(self._turns)].release()

    def _train(self, worker: int) -> None:
        spec, seed = self._spec, 1000 * (self._spec.seed or 0) + worker
        environments = make_environments(spec.environment, count=spec.environment.envs)
        algorithm = build_agent(spec, environments, device=torch.device("cpu"), seed=seed)
        if self.run.store is None:
            measure_normalization(algorithm.network, environments, seed=seed)
        network = FlatNetwork(algorithm.network, blocks=algorithm.blocks)
        if self.run.store is None:
            self.run.seed(network.schema, network.weights)
        lost = spec.environment.lost_game_reward
        collector = collector_for(algorithm, environments, seed=seed, lost_game_reward=lost)
        # A clock that advances by a second per reading: training reports after every unroll.
        clock = itertools.count().__next__
        parameters = ParametersInTurn(self, worker, network.schema, environments=environments.count)
        train(parameters, network, collector, algorithm, clock=clock)


class ParametersInTurn:
    """The run's parameters as one worker sees them; a turn lasts from one push to the next."""

    def __init__(self, simulated: SimulatedRun, worker: int, schema: Schema, *, environments: int) -> None:
        self._simulated, self._worker, self._schema = simulated, worker, schema
        self._name, self._pushes = f"worker-{worker}", 0
        opened = Opened(incarnation=1, proof="p", key="", oldest=1, environments=environments)
        simulated.run.ledger.open(self._name, opened)

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        return self._simulated.newest(target=target)

    def push_pull(
        self, gradient: Tensor | None, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()
    ) -> Newest:
        self._pushes += 1
        push = Push(
            request=1,
            sequence=self._pushes,
            computed_on=computed_on.version,
            epoch=self._simulated.run.epoch,
            schema_hash=self._schema.hash,
            steps=steps,
            codec=NO_GRADIENT if gradient is None else "float32",
            blocks=blocks,
        )
        self._simulated.settle(self._name, push, gradient)
        newest = self._simulated.newest()
        self._simulated.next_turn(self._worker)
        return newest  # stale by one round of turns

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None:
        self._simulated.finished(episodes)

    def finish(self) -> None:
        """Nothing is left to be sent."""
