"""The loop, with an object as its server and a number as its clock."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ps_client.shell.newest import Newest
from ps_common.errors import RunEnded
from ps_common.protocol.messages import Episode
from ps_common.settings import run_spec
from rl_agent.algorithms.algorithm import Loaded, Loss
from rl_agent.networks.flat_network import Block, FlatNetwork
from rl_agent.rollouts import Decision, RolloutCollector, State, Trajectory
from rl_worker.training import Learner, train
from tests.rl_agent.local_parameters import LocalParameters
from tests.rl_agent.scripted_environments import Game, ScriptedActor, ScriptedEnvironments

UNROLL = 2
SECONDS_PER_STEP, SECONDS_PER_LOSS, SECONDS_PER_PUSH = 0.1875, 0.25, 0.375  # sums of these are exact


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Trial:
    """A training run, recorded."""

    batches_per_unroll: int = 1
    updates: int = 4
    gradient_clip: float = 0.0
    speed: float = 1.0  # of everything that takes time
    server_is_slow: bool = True
    learns_with_newest: bool = False
    learns_while_acting: bool = False
    loaded: list[Loaded] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    learned_with: list[Tensor] = field(default_factory=list)  # weights at each loss
    acted_with: list[Tensor] = field(default_factory=list)  # weights at the beginning of each unroll
    global_steps: list[int] = field(default_factory=list)  # at the beginning of each unroll
    adjusted: dict[int, run_spec.Algorithm] = field(default_factory=dict)  # settings, by the unroll that begins then
    learned_as: list[tuple[int, run_spec.Algorithm]] = field(default_factory=list)  # unrolls begun, settings
    asks_to_leave_in_unroll: int = -1
    ended: list[tuple[int, int]] = field(default_factory=list)  # games that ended in each unroll, T after it

    def run(self, ends: AbstractContextManager[Any] | None = None) -> "TrialParameters":
        network = nn.Linear(3, 1, bias=False)
        flat = FlatNetwork(network)
        parameters = TrialParameters(torch.tensor([1.0, 2.0, 3.0]), 0.01, self.updates)
        parameters.trial = self
        algorithm = TrialAlgorithm(self, network, flat)
        games = [Game((1.0, 2.0), "terminated")]
        environments = ScriptedEnvironments(games, games, games)
        collector = RolloutCollector(
            environments, algorithm, unroll_length=UNROLL, discount=0.9, seed=0,
            keeps_unrolls=self.learns_while_acting,
        )  # fmt: skip
        with ends or pytest.raises(RunEnded, match="that was all"):
            train(
                parameters,
                flat,
                collector,
                algorithm,
                on_episodes=self.on_episodes,
                adjusted=lambda: self.adjusted.get(len(self.global_steps)),
                is_leaving=lambda: len(self.global_steps) == self.asks_to_leave_in_unroll,
                clock=self.clock,
            )
        return parameters

    def on_episodes(self, episodes: Sequence[Episode], newest: Newest) -> None:
        if episodes:
            self.ended.append((len(episodes), newest.global_steps))

    def passes(self, seconds: float) -> None:
        self.clock.now += seconds / self.speed


class TrialParameters(LocalParameters):
    """Parameters that take time, and record every vector that they return."""

    trial: Trial
    returned: list[Tensor]

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        """Before every pull but the first another worker has pushed."""
        if have is not None:
            self.weights = self.weights + 1
            self.version += 1
        return super().pull(have, target=target)

    def push_pull(
        self, gradient: Tensor | None, *, computed_on: Newest, steps: int, blocks: tuple[str, ...] = ()
    ) -> Newest:
        if self.trial.server_is_slow:
            self.trial.passes(SECONDS_PER_PUSH)
        return super().push_pull(gradient, computed_on=computed_on, steps=steps)

    def _newest(self) -> Newest:
        newest = super()._newest()
        assert newest.weights is not None
        self.returned = [*getattr(self, "returned", []), newest.weights]
        return newest


class TrialAlgorithm(ScriptedActor):
    """Learns the sum of its observations, in as many batches as the trial has."""

    target_network: nn.Module | None = None
    unroll_length = UNROLL
    commits_next_action = False
    discount = 0.9
    blocks: tuple[Block, ...] = ()

    def __init__(self, trial: Trial, network: nn.Module, flat: FlatNetwork) -> None:
        super().__init__()
        self.network = network
        self.gradient_clip = trial.gradient_clip
        self.learns_with_newest = trial.learns_with_newest
        self.learns_while_acting = trial.learns_while_acting
        self._trial = trial
        self._flat = flat

    def adjust(self, settings: run_spec.Algorithm) -> None:
        self._trial.learned_as.append((len(self._trial.global_steps), settings))

    def begin_unroll(self, global_steps: int) -> None:
        self._trial.acted_with.append(self._flat.weights.clone())
        self._trial.global_steps.append(global_steps)

    def loaded(self, loaded: Loaded) -> None:
        self._trial.loaded.append(loaded)

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        self._trial.passes(SECONDS_PER_STEP)
        return super().act(observations, state, starts)

    def batches(self, trajectory: Trajectory) -> Iterator[Tensor]:
        for _ in range(self._trial.batches_per_unroll):
            yield trajectory.observations[:-1].flatten(0, 1).clone()

    def loss(self, batch: Tensor) -> Loss:
        self._trial.learned_with.append(self._flat.weights.clone())
        self._trial.passes(SECONDS_PER_LOSS)
        total = self.network(batch).sum()
        return Loss(total, {"sum": total.detach()})


def test_adjusted_settings_are_the_algorithms_before_the_next_unroll() -> None:
    settings = run_spec.A3CSettings(entropy_weight=0.5)
    trial = Trial(adjusted={2: settings})
    trial.run()
    assert trial.learned_as == [(2, settings)]


def equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return len(some) == len(others) and all(map(torch.equal, some, others))


@pytest.mark.parametrize("batches", [1, 3])
def test_each_gradient_is_computed_on_the_newest_weights_and_names_their_version(batches: int) -> None:
    trial = Trial(batches_per_unroll=batches, updates=6)
    parameters = trial.run()
    assert equal(trial.learned_with, parameters.returned)
    assert equal(trial.acted_with, parameters.returned[::batches])
    assert [computed_on for _, computed_on, _ in parameters.pushed] == [1, 2, 3, 4, 5, 6]
    assert not torch.equal(parameters.returned[0], parameters.returned[1])


def test_an_unroll_without_a_batch_counts_its_steps_and_moves_nothing() -> None:
    parameters = Trial(batches_per_unroll=0, updates=3).run()
    assert [(gradient, steps) for gradient, _, steps in parameters.pushed] == [(None, 3 * UNROLL)] * 3
    assert (parameters.version, parameters.global_steps) == (1, 6 * UNROLL)


def test_the_algorithm_is_told_that_the_run_went_back_and_how_many_workers_live() -> None:
    """To a checkpoint while the server runs, which is a later version; or to that of a server started again."""
    replies = [(1, 1, 0), (1, 2, 0), (1, 3, 1), (1, 4, 1), (2, 5, 0), (3, 4, 0)]  # epoch, version, recalls
    told: list[Loaded] = []
    algorithm = SimpleNamespace(loaded=told.append, target_network=None)
    network = FlatNetwork(nn.Linear(1, 1))
    learner = Learner(LocalParameters(network.weights, 0.1, 9), network, algorithm, None)  # type: ignore[arg-type]
    for epoch, version, recalls in replies:
        learner.load(Newest(epoch, version, 9, 1, torch.zeros(2), workers=3, recalls=recalls))
    assert [one.went_back for one in told] == [False, False, True, False, False, True]
    assert {one.workers for one in told} == {3}


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_an_algorithm_that_learns_while_it_acts_acts_with_the_weights_of_one_unroll_before(batches: int) -> None:
    ahead = Trial(batches_per_unroll=batches, updates=7, learns_while_acting=True)
    in_turn = Trial(batches_per_unroll=batches, updates=7)
    parameters, others = ahead.run(), in_turn.run()
    assert [steps for _, _, steps in parameters.pushed] == [steps for _, _, steps in others.pushed]
    assert equal(ahead.acted_with[1:], [ahead.acted_with[0], *in_turn.acted_with[1:]][: len(ahead.acted_with) - 1])


def test_an_algorithm_that_corrects_for_it_learns_with_newer_weights_than_those_that_acted() -> None:
    trial = Trial(updates=3, learns_with_newest=True)
    parameters = trial.run()
    assert equal(trial.acted_with, parameters.returned[::2])
    assert equal(trial.learned_with, parameters.returned[1::2])
    assert [computed_on for _, computed_on, _ in parameters.pushed] == [2, 4, 6]


def test_the_gradient_that_is_pushed_is_that_of_the_loss() -> None:
    """The sum over observations (row, game, step): rows 0 to 2, steps 0 and 1, the first game."""
    parameters = Trial(updates=1).run()
    ((gradient, _, _),) = parameters.pushed
    assert gradient.tolist() == [2 * (0 + 1 + 2), 0, 3 * (0 + 1)]


def test_the_gradient_is_clipped_as_the_algorithm_sets() -> None:
    ((gradient, _, _),) = Trial(updates=1, gradient_clip=0.5).run().pushed
    assert float(gradient.norm()) == pytest.approx(0.5)


def test_a_report_has_scores_losses_and_shares_of_time() -> None:
    parameters = Trial(updates=2).run()
    # An unroll takes 2 · 0.1875 s of acting, 0.25 s of learning, 0.375 s of pushing: one second.
    episodes, meters = parameters.reports[0]
    assert episodes == [Episode(3.0, 2, global_steps=6)] * 3
    observed = torch.tensor([6.0, 0.0, 3.0])
    assert meters == {
        "sum": pytest.approx(float(observed @ torch.tensor([1.0, 2.0, 3.0]))),
        "loss": pytest.approx(float(observed @ torch.tensor([1.0, 2.0, 3.0]))),
        "gradient_norm": pytest.approx(float(observed.norm())),
        "weight_norm": pytest.approx(float((torch.tensor([1.0, 2.0, 3.0]) - 0.01 * observed).norm())),
        "steps_per_second": 6.0,
        "collect_share": 0.375,
        "learn_share": 0.25,
        "server_share": 0.375,
    }


@pytest.mark.parametrize("batches", [1, 3])
def test_the_games_whose_steps_were_pushed_are_reported_when_the_run_ends(batches: int) -> None:
    """They came too soon after a report for another one. The push that ends the run is the last or the first of one."""
    trial = Trial(updates=2 + 2 * batches, batches_per_unroll=batches, speed=100.0)
    (first, _), (rest, meters) = trial.run().reports
    assert len(trial.ended) == 3
    assert first + rest == [Episode(3.0, 2, global_steps=6 * (1 + at // 3)) for at in range(3 * len(trial.ended))]
    assert (len(first), meters) == (3, {})


def test_games_are_stamped_with_their_place_between_the_steps_of_the_run_before_and_after_the_unroll() -> None:
    """Other workers have counted steps meanwhile."""
    games = [Game((1.0,), "terminated")]
    collector = RolloutCollector(
        ScriptedEnvironments(games, games), ScriptedActor(), unroll_length=4, discount=0.9, seed=0
    )
    collector.collect()
    stamps = [episode.global_steps for episode in collector.take_episodes().between(1000, 1080)]
    assert stamps == [1020, 1020, 1040, 1040, 1060, 1060, 1080, 1080]


# -- the target network -----------------------------------------------------------------------------------------------


class WithTarget(TrialAlgorithm):
    """Records the weights of its target network at each loss."""

    def __init__(self, trial: Trial, network: nn.Module, flat: FlatNetwork) -> None:
        super().__init__(trial, network, flat)
        self.target_network = nn.Linear(3, 1, bias=False)
        self.targets: list[list[float]] = []

    def loss(self, batch: Tensor) -> Loss:
        assert self.target_network is not None
        self.targets += self.target_network.weight.tolist()
        return super().loss(batch)


def test_the_target_is_fetched_when_it_has_changed_and_only_then() -> None:
    """Six steps an unroll, a refresh every 15: at T = 18, 30, 48, 60 …; each is learned from in the unroll after it."""
    network = nn.Linear(3, 1, bias=False)
    flat = FlatNetwork(network)
    first = torch.tensor([1.0, 2.0, 3.0])
    parameters = LocalParameters(first, 0.01, updates=12, target_interval=15, target_version=1, target=first)
    algorithm = WithTarget(Trial(), network, flat)
    games = [Game((1.0, 2.0), "terminated")]
    collector = RolloutCollector(
        ScriptedEnvironments(games, games, games), algorithm, unroll_length=UNROLL, discount=0.9, seed=0
    )
    with pytest.raises(RunEnded):
        train(parameters, flat, collector, algorithm)
    assert parameters.pulled_targets == [1, 4, 6, 9, 11]
    learned_with = algorithm._trial.learned_with
    expected = [learned_with[unroll].tolist() for unroll in (0, 0, 0, 3, 3, 5, 5, 5, 8, 8, 10, 10)]
    assert algorithm.targets == expected


def test_a_worker_that_is_asked_to_leave_pushes_its_unroll_and_reports_its_games() -> None:
    """The question comes in the midst of the third unroll; too soon after a report for another one."""
    trial = Trial(updates=10**6, speed=100.0)
    trial.asks_to_leave_in_unroll = 3
    parameters = trial.run(ends=nullcontext())
    assert len(parameters.pushed) == 3
    assert parameters.is_finished
    reported = sum(len(episodes) for episodes, _ in parameters.reports)
    assert reported == sum(ended for ended, _ in trial.ended) > 0
