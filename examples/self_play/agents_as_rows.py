"""Agents of PettingZoo's parallel API as rows of a Gymnasium vector environment: one policy learns to play them all."""

from collections.abc import Sequence
from glob import glob
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from ps_rl import Policy, load_policy

STEPS = 500  # against one earlier checkpoint, before another is drawn


class AgentsAsRows(VectorEnv[Any, Any, Any]):
    """
    So many agents, of games whose agents have equal spaces and end together. In most games all agents are rows: the
    policy plays against itself. In the others one agent is a row, and the rest are an earlier checkpoint, or random.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012  (as in Gymnasium)

    def __init__(self, make: Any, num_envs: int, pool: str, imports: Sequence[str], against: float = 0.25) -> None:
        """A share of `against` of the rows plays against the checkpoints that `pool` names, a pattern of files."""
        self.num_envs, self.pool, self.imports, self.steps = num_envs, pool, imports, 0
        self.opponent: Policy | None = None
        agents = (game := make()).possible_agents
        spaces = game.observation_space(agents[0]), game.action_space(agents[0])
        self.single_observation_space, self.single_action_space = spaces
        self.observation_space, self.action_space = (batch_space(space, num_envs) for space in spaces)
        mirrored = int(num_envs * (1 - against)) // len(agents)
        self.games = [make() for _ in range(mirrored + num_envs - mirrored * len(agents))]
        seats = [(number, agent) for number in range(len(self.games)) for agent in agents]
        self.rows = [(game, agent) for game, agent in seats if game < mirrored or agent == agents[game % len(agents)]]
        self.others = [seat for seat in seats if seat not in self.rows]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seen = [self._begun(game) for game in self.games]
        return self._of(self.rows, self.seen), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        chosen = dict(zip(self.rows + self.others, [*actions, *self._actions_of_others()], strict=True))
        stepped = [game.step({agent: chosen[at, agent] for agent in game.agents}) for at, game in enumerate(self.games)]
        last, *rest = (self._of(self.rows, part) for part in list(zip(*stepped, strict=True))[:4])
        self.seen = [of[0] if game.agents else self._begun(game) for game, of in zip(self.games, stepped, strict=True)]
        return self._of(self.rows, self.seen), *rest, {"final_obs": last}

    def _begun(self, game: Any) -> Any:
        return game.reset(seed=int(self.np_random.integers(2**31)))[0]

    def _of(self, seats: Sequence[tuple[int, str]], parts: Sequence[dict[str, Any]]) -> Any:
        return np.array([parts[game][agent] for game, agent in seats])

    def _actions_of_others(self) -> Any:
        if self.steps % STEPS == 0 and (earlier := sorted(glob(self.pool))):
            self.opponent = load_policy(self.np_random.choice(earlier), imports=self.imports)
        self.steps += 1
        if self.opponent is None or not self.others:
            return [self.single_action_space.sample() for _ in self.others]
        return self.opponent.act(self._of(self.others, self.seen))
