"""
Experience: unrolls of B environments over T steps, and the unclipped returns of their episodes.

The collector steps environments with any actor; it knows no algorithm and no server.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from torch import Tensor

from ps_common.protocol.messages import Episode
from ps_common.settings import run_spec
from rl_agent.environments.interface import Environments, Stepped
from rl_agent.environments.spaces import BoxActions, DiscreteActions, MultiDiscreteActions, Observations
from rl_agent.games import Games

State = tuple[Tensor, ...]  # of a recurrent network, each [B, ...]; () of a feed-forward one


@dataclass(frozen=True)
class Decision:
    """An actor's choice for B observations."""

    actions: Tensor  # [B] int64, [B, K] int64, or [B, A] float32
    state: State  # for the next decision
    recorded: dict[str, Tensor]  # for the learner, each [B]


class Actor(Protocol):
    """Chooses actions."""

    def initial_state(self, count: int) -> State:
        """The state before the first observation."""

    def act(self, observations: Tensor, state: State, starts: Tensor, *, greedy: bool = False) -> Decision:
        """
        Decide for observations [B, ...]; `starts` [B] bool marks the first of an episode. `greedy` leaves out
        exploration.
        """


Watcher = Callable[[Tensor, State, Tensor, Decision, float], None]


@dataclass(frozen=True)
class CutOff:
    """The last observations of episodes that step `t` truncated. Their values are bootstrapped."""

    t: int
    rows: Tensor  # [n] indices of environments
    observations: Tensor  # [n, ...]
    state: State  # of the actor for these observations, each [n, ...]


@dataclass(frozen=True)
class Trajectory:
    """One unroll. Its tensors are views of buffers that the next unroll overwrites, unless the collector keeps them."""

    observations: Tensor  # [T + 1, B, ...] uint8 or float32; the last is the first of the next unroll
    starts: Tensor  # [T + 1, B] bool: the observation is the first of an episode
    actions: Tensor  # [T, B(, K)] int64 or [T, B, A] float32; T + 1 where the collector commits to the next action
    rewards: Tensor  # [T, B] true, unclipped
    discounts: Tensor  # [T, B] γ, or 0 where the step ended its return (returns.py): never where it truncated alone
    continues: Tensor  # [T, B] 0 where the step ended its return, or truncated its episode; else 1
    recorded: dict[str, Tensor]  # of the decisions, each [T, B]
    initial_state: State  # before the first observation
    final_state: State  # before the last observation
    cut_offs: tuple[CutOff, ...]

    @property
    def steps(self) -> int:
        """Environment steps, T · B."""
        return self.rewards.numel()


def learner_rewards(rewards: Tensor, settings: run_spec.Method, returns: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Rewards for the learner, of the same shape: clipped, normalized by `returns` if there are some, and scaled."""
    clipped = rewards.clamp(-settings.reward_clip, settings.reward_clip) if settings.reward_clip else rewards
    return (clipped if returns is None else returns(clipped)) * settings.reward_scale


class EndedEpisodes:
    """Episodes of an unroll, with their unclipped returns, and where in the unroll they ended."""

    def __init__(self, episodes: list[tuple[float, Episode]]) -> None:
        """Each with the share of the unroll's steps after which it ended."""
        self._episodes = episodes

    def __iter__(self) -> Iterator[Episode]:
        return (episode for _, episode in self._episodes)

    def between(self, before: int, after: int) -> list[Episode]:
        """Each stamped with its place between T before and after the unroll."""
        return [
            replace(episode, global_steps=before + round((after - before) * share)) for share, episode in self._episodes
        ]


class Interrupted(Exception):
    """The unroll is not wanted any more."""


class RolloutCollector:
    """Steps environments, one unroll at a time."""

    def __init__(
        self,
        environments: Environments,
        actor: Actor,
        *,
        unroll_length: int,
        discount: float,
        seed: int | None,
        commits_next_action: bool = False,
        keeps_unrolls: bool = False,
        watcher: Watcher | None = None,
    ) -> None:
        """
        With one environment an unroll ends early with the episode, as in the paper; with several it goes on.
        `keeps_unrolls`: each unroll has memory of its own, so that it may be learned from while the next is collected.
        `watcher` gets each decision with what it was made from, and the score of the first environment so far.
        `commits_next_action`: the action after the last step is chosen in this unroll and taken in the next (Sarsa).
        """
        self._environments = environments
        self._actor = actor
        self._discount = discount
        self._commits = commits_next_action
        self._watcher = watcher
        self._keeps = keeps_unrolls
        self._is_interrupted = False
        self._ended_at = T = unroll_length  # the row where the last unroll ended and the next one begins
        B = environments.count
        self._allocate(T)
        self._state = actor.initial_state(B)
        self._committed: Decision | None = None
        self._games = Games(B)
        self._observations[T] = torch.from_numpy(environments.reset(seed))

    def _allocate(self, T: int) -> None:
        B = self._environments.count
        self._observations = _empty_observations(self._environments, T + 1)
        self._starts = torch.ones(T + 1, B, dtype=torch.bool)
        self._actions = _empty_actions(self._environments, T + 1)
        self._rewards = torch.empty(T, B)
        self._discounts = torch.empty(T, B)
        self._continues = torch.empty(T, B)
        self._recorded: dict[str, Tensor] = {}

    def interrupt(self) -> None:
        """End an unroll that another thread collects, at its next step: `collect` raises Interrupted."""
        self._is_interrupted = True

    def collect(self) -> Trajectory:
        """The next T steps of each environment."""
        observations, starts = self._observations[self._ended_at], self._starts[self._ended_at]
        if self._keeps:
            self._allocate(len(self._rewards))
        self._observations[0], self._starts[0] = observations, starts
        initial_state = self._state
        cut_offs: list[CutOff] = []
        t = 0
        while t < len(self._rewards):
            decision, self._committed = self._committed or self._decide(t), None
            self._record(t, decision)
            stepped = self._environments.step(self._actions[t].numpy())
            self._observations[t + 1] = torch.from_numpy(stepped.observations)
            self._rewards[t] = torch.from_numpy(stepped.rewards)
            self._mark_ends(t, stepped)
            if stepped.final_observations is not None and stepped.truncated.any():
                cut_offs.append(_cut_off(t, stepped.truncated, stepped.final_observations, decision.state))
            self._state = decision.state
            t += 1
            if self._environments.count == 1 and self._starts[t, 0]:
                break
        self._ended_at = t
        if self._commits:
            self._committed = self._decide(t)
            self._actions[t] = self._committed.actions
        return Trajectory(
            observations=self._observations[: t + 1],
            starts=self._starts[: t + 1],
            actions=self._actions[: t + self._commits],
            rewards=self._rewards[:t],
            discounts=self._discounts[:t],
            continues=self._continues[:t],
            recorded={name: values[:t] for name, values in self._recorded.items()},
            initial_state=initial_state,
            final_state=self._state,
            cut_offs=tuple(cut_offs),
        )

    def take_episodes(self) -> "EndedEpisodes":
        """The episodes that ended since the last call."""
        return EndedEpisodes([(t / self._ended_at, episode) for t, episode in self._games.take()])

    @property
    def metrics(self) -> dict[str, float]:
        """Meters of the numbers that the environments give with their games: means over the newest games."""
        return self._games.metrics

    def _decide(self, t: int) -> Decision:
        if self._is_interrupted:
            raise Interrupted
        made_from = (self._observations[t], self._state, self._starts[t])
        decision = self._actor.act(*made_from)
        if self._watcher is not None:
            self._watcher(*made_from, decision, float(self._games.returns[0]))
        return decision

    def _record(self, t: int, decision: Decision) -> None:
        self._actions[t] = decision.actions
        for name, values in decision.recorded.items():
            if name not in self._recorded:
                self._recorded[name] = torch.empty(self._rewards.shape)
            self._recorded[name][t] = values

    def _mark_ends(self, t: int, stepped: Stepped) -> None:
        ended = stepped.ended
        # A lost life or a reward may end the return that the learner expects, but not the episode.
        stops = stepped.terminated if stepped.return_ended is None else stepped.terminated | stepped.return_ended
        self._starts[t + 1] = torch.from_numpy(ended)
        self._discounts[t] = torch.from_numpy(np.where(stops, 0.0, self._discount))
        self._continues[t] = torch.from_numpy(np.where(stepped.return_ends, 0.0, 1.0))
        self._games.stepped(t, stepped.rewards, ended, stepped.metrics, failed=stepped.failed)


def _cut_off(t: int, truncated: NDArray[np.bool_], last: Observations, state: State) -> CutOff:
    rows = torch.from_numpy(np.flatnonzero(truncated))
    return CutOff(t, rows, torch.from_numpy(last[truncated]), tuple(part[rows] for part in state))


def _empty_observations(environments: Environments, steps: int) -> Tensor:
    space = environments.observations
    dtype = torch.uint8 if space.dtype == np.uint8 else torch.float32
    return torch.empty(steps, environments.count, *space.shape, dtype=dtype)


def _empty_actions(environments: Environments, steps: int) -> Tensor:
    match environments.actions:
        case BoxActions() as box:
            return torch.empty(steps, environments.count, len(box.low))
        case MultiDiscreteActions() as several:
            return torch.empty(steps, environments.count, len(several.counts), dtype=torch.int64)
        case DiscreteActions():
            return torch.empty(steps, environments.count, dtype=torch.int64)
