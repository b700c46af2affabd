"""
The common part of the three methods that learn action values: ε-greedy acting, and the loss ½ (y − Q(s, a; θ))².

The methods differ in their targets y: see one_step_q.py, one_step_sarsa.py and n_step_q.py.

Mnih et al. 2016, section 8: each worker draws its final ε from {0.1, 0.01, 0.5} with probabilities {0.4, 0.3, 0.3} and
anneals from 1. Here every environment has its own ε, since one worker steps many. ε is annealed on the global step
counter T, so that a worker that joins late does not start at ε = 1.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Self

import torch
from msgspec import structs
from torch import Tensor, nn
from torch.nn import functional

from ps_common.meters import linear
from ps_common.settings import run_spec
from rl_agent.algorithms.algorithm import FollowsNothing, Loss, Prediction
from rl_agent.environments.spaces import Spaces
from rl_agent.networks.flat_network import Block
from rl_agent.networks.networks import ActionValueNetwork, action_value_network, allowed
from rl_agent.rollouts import Decision, State, Trajectory, learner_rewards

EVALUATION_EPSILON = 0.05  # of games that are scored; as in Mnih et al. 2015
EXPLORATION = attrgetter("final_epsilons", "epsilon_probabilities", "epsilon_anneal_steps")


class EpsilonSchedule:
    """The ε of `count` environments as functions of T."""

    def __init__(self, count: int, settings: run_spec.ActionValuesSettings, generator: torch.Generator) -> None:
        self.count = count
        self._anneal_steps = settings.epsilon_anneal_steps
        probabilities = torch.tensor(settings.epsilon_probabilities)
        rows = torch.multinomial(probabilities, count, replacement=True, generator=generator)
        self._drawn = torch.tensor(settings.final_epsilons)[rows]

    def at(self, global_steps: int) -> Tensor:
        """[B]: each environment's probability of a random action."""
        chance = linear(global_steps, initial=1.0, final=0.0, over=self._anneal_steps) if self._anneal_steps else 0.0
        return torch.lerp(self._drawn, torch.ones(self.count), chance)


def epsilon_greedy(values: Tensor, epsilons: Tensor, generator: torch.Generator) -> Tensor:
    """values Q [B, A], epsilons [B] → actions [B]: with probability ε any that is allowed, otherwise the best."""
    best = values.argmax(-1)
    chance = torch.rand(best.shape, generator=generator) < epsilons
    possible = allowed(values)
    if possible.all():
        anything = torch.randint(values.shape[-1], best.shape, generator=generator)
    else:
        anything = torch.multinomial(possible.float(), 1, generator=generator).squeeze(-1)
    return torch.where(chance, anything, best)


@dataclass(frozen=True)
class ValueBatch:
    """Steps to learn from, in any order."""

    observations: Tensor  # [N, ...]
    actions: Tensor  # [N]
    targets: Tensor  # y [N]


class EpsilonGreedy(FollowsNothing):
    """ε-greedy play with action values. `network`: observations [N, ...] → Q [N, A]."""

    commits_next_action = False
    learns_while_acting = False
    blocks: tuple[Block, ...] = ()
    learns_with_newest = False
    make_network = staticmethod(action_value_network)

    def __init__(
        self, network: ActionValueNetwork, settings: run_spec.ActionValuesSettings, *, device: torch.device, seed: int
    ) -> None:
        self.network = network
        self.acting_network = network  # that `act` uses
        self.target_network: nn.Module | None = another(network) if settings.target_interval else None
        self.unroll_length = settings.unroll_length
        self.discount = settings.discount
        self.gradient_clip = settings.gradient_clip
        self._settings = settings
        self._device = device
        self._random = torch.Generator().manual_seed(seed)
        self._global_steps = 0
        self._epsilons: EpsilonSchedule | None = None  # one ε per environment, from `initial_state` on

    def adjust(self, settings: Any) -> None:
        assert isinstance(settings, run_spec.ActionValuesSettings), "a run keeps its algorithm"
        before, self._settings = self._settings, settings
        # While those of exploration are the same, each environment keeps the ε that it has drawn.
        if self._epsilons is not None and EXPLORATION(settings) != EXPLORATION(before):
            self.initial_state(self._epsilons.count)

    def begin_evaluation(self) -> None:
        """Explore as little as games that are scored do: in training each environment draws an ε of its own."""
        self.play_with(EVALUATION_EPSILON)

    def play_with(self, epsilon: float) -> None:
        """Have this share of random actions in every environment, at any step, from the next `initial_state` on."""
        self._settings = structs.replace(
            self._settings,
            final_epsilons=(epsilon,),
            epsilon_probabilities=(1.0,),
            epsilon_anneal_steps=0,
        )

    def begin_unroll(self, global_steps: int) -> None:
        self._global_steps = global_steps

    def initial_state(self, count: int) -> State:
        self._epsilons = EpsilonSchedule(count, self._settings, self._random)
        return ()

    @torch.no_grad()
    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        """ε-greedy actions, or the best ones if `greedy`."""
        values = self.acting_network(observations.to(self._device)).cpu()
        actions = values.argmax(-1) if greedy else epsilon_greedy(values, self.epsilons(), self._random)
        return Decision(actions, (), {})

    @torch.no_grad()
    def predict(self, observations: Tensor, state: State, starts: Tensor) -> Prediction:
        """The greatest Q(s, a), and the probabilities of the ε-greedy policy."""
        values = self.network(observations.to(self._device)).cpu()
        epsilons = self.epsilons().unsqueeze(-1)
        best = functional.one_hot(values.argmax(-1), values.shape[-1])
        possible = allowed(values).float()
        return Prediction(values.amax(-1), (1 - epsilons) * best + epsilons * possible / possible.sum(-1, keepdim=True))

    def epsilons(self) -> Tensor:
        """[B]: each environment's current probability of a random action."""
        assert self._epsilons is not None, "initial_state comes first: it sets the number of environments"
        return self._epsilons.at(self._global_steps)


class ActionValueLearner(EpsilonGreedy):
    """ε-greedy play, and the squared error of Q(s, a), of the steps of an unroll."""

    @classmethod
    def build(
        cls,
        settings: run_spec.ActionValuesSettings,
        run: run_spec.RunSpec,
        spaces: Spaces,
        *,
        device: torch.device,
        seed: int,
    ) -> Self:
        """The algorithm with a new network. Raises SettingsError when the network does not fit the spaces."""
        return cls(built_network(cls, settings, run, spaces, device), settings, device=device, seed=seed)

    def rewards(self, trajectory: Trajectory) -> Tensor:
        """[T, B]: the rewards clipped, normalized and scaled as the settings say."""
        return learner_rewards(trajectory.rewards, self._settings, self.network.returns)

    def values_after(self, trajectory: Trajectory, *, at_ends: bool = False) -> Tensor:
        """
        Q(s', ·; θ⁻) [T, B, A] for the observation s' after each step; where a step truncated its episode, s' is the
        final observation of that episode. `at_ends`: only at ends of the unroll and of episodes; the rest stays 0.
        """
        network = self.network if self.target_network is None else self.target_network
        T, B = trajectory.rewards.shape
        first = T - 1 if at_ends else 0
        seen = trajectory.observations[first + 1 :].flatten(0, 1)
        values = network(seen.to(self._device)).cpu().unflatten(0, (-1, B))
        values = torch.cat([torch.zeros(first, *values.shape[1:]), values])
        for cut_off in trajectory.cut_offs:
            values[cut_off.t, cut_off.rows] = network(cut_off.observations.to(self._device)).cpu()
        return values

    def targets(self, trajectory: Trajectory) -> Tensor:
        """y [T, B], or the first rows of it."""
        raise NotImplementedError

    def batches(self, trajectory: Trajectory) -> Iterator[ValueBatch]:
        """The whole unroll as one batch."""
        yield self.whole(trajectory)

    @torch.no_grad()
    def whole(self, trajectory: Trajectory) -> ValueBatch:
        """All steps of an unroll as one batch, with their targets."""
        targets = self.targets(trajectory)
        return ValueBatch(
            observations=trajectory.observations[: len(targets)].flatten(0, 1).to(self._device),
            actions=trajectory.actions[: len(targets)].flatten().to(self._device),
            targets=targets.flatten().to(self._device),
        )

    def loss(self, batch: ValueBatch) -> Loss:
        """½ (y − Q(s, a))²"""
        values = self.network(batch.observations).gather(-1, batch.actions.unsqueeze(-1)).squeeze(-1)
        each = 0.5 * (batch.targets - values).square()
        total = each.sum() if self._settings.loss == "sum" else each.mean()
        meters = {"value_loss": each.detach().mean(), "value": values.detach().mean()}
        return Loss(total, meters if self._epsilons is None else meters | {"epsilon": self.epsilons().mean()})


def built_network(
    method: type[EpsilonGreedy],
    settings: run_spec.ActionValuesSettings,
    run: run_spec.RunSpec,
    spaces: Spaces,
    device: torch.device,
) -> ActionValueNetwork:
    """A new network of the method, which knows how another one of its kind is built."""

    def build() -> ActionValueNetwork:
        return method.make_network(settings, run.network, spaces).to(device)

    made = build()
    made.another = build
    return made


def another(network: ActionValueNetwork) -> ActionValueNetwork:
    """
    A network of the same kind with the same weights. It is built where that is known: a custom torso may hold what
    cannot be copied, or a hook whose copy would read the weights of the first.
    """
    make: Callable[[], ActionValueNetwork] | None = getattr(network, "another", None)
    if make is None:
        return deepcopy(network)
    with torch.random.fork_rng(devices=[]):  # what is drawn later depends on the seed, not on this network
        made = make()
    made.load_state_dict(network.state_dict())
    return made
