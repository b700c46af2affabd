"""`evaluate`: full games of a policy in an environment of Gymnasium."""

from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import xxhash
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from ps_common.errors import SettingsError
from ps_rl.environment import make_env
from rl_agent.algorithms.action_values import EVALUATION_EPSILON
from rl_agent.environments.custom_environment import SAME_STEP
from rl_eval.games import Game, Result, add_to, shares, summary
from rl_eval.policy import Policy

SIDE_BY_SIDE = 10  # games


def evaluate(
    policy: Policy,
    env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any] | None = None,
    *,
    episodes: int = 10,
    greedy: bool = False,
    seed: int = 1_000_000,
) -> Result:
    """
    The scores of so many full games, with their mean and its interval, played in this process.

        evaluate(load_policy("my-policy"), episodes=100)
        evaluate(policy, make_env(policy, count=8, sticky_actions=0.25))

    `env` shows what the policy sees, as those of `make_env` do, and is left open; a vector environment plays as many
    games side by side, each environment its share. Without it the policy plays in the environment of its run, ten games
    side by side. Its memory begins anew with each game. `seed` is that of the first reset; that of sampled actions is
    an argument of `load_policy`. Raises SettingsError for what cannot be played.
    """
    if episodes < 1:
        raise SettingsError(f"evaluate: episodes={episodes}: must be 1 or more")
    with ExitStack() as opened:
        games_of: Any = env
        if env is None:
            games_of = make_env(policy, count=min(episodes, SIDE_BY_SIDE))
            opened.callback(games_of.close)
        elif not isinstance(env, VectorEnv):
            games_of = SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.SAME_STEP)
        games = _played(policy, games_of, episodes=episodes, greedy=greedy, seed=seed)
    epsilon = (0.0 if greedy else EVALUATION_EPSILON) if policy.learns_values else None
    return summary(games, environment=policy.run.environment.id, greedy=greedy, epsilon=epsilon)


def _played(policy: Policy, env: VectorEnv[Any, Any, Any], *, episodes: int, greedy: bool, seed: int) -> list[Game]:
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if AutoresetMode(mode) != AutoresetMode.SAME_STEP:
        raise SettingsError(f"evaluate: {env}: {SAME_STEP}")
    share, scores = shares(episodes, env.num_envs), np.zeros(env.num_envs)
    traces, games = [xxhash.xxh3_64() for _ in scores], []
    policy.reset()
    observations, _ = env.reset(seed=seed)
    while share.any():
        actions = policy.act(observations, greedy=greedy)
        add_to(traces, *(observations if isinstance(observations, tuple) else (observations,)), actions)
        observations, rewards, terminated, truncated, _ = env.step(actions)
        add_to(traces, rewards)
        scores += rewards
        ended = terminated | truncated
        policy.reset(ended)
        for row in np.flatnonzero(ended):
            if share[row]:
                share[row] -= 1
                trace = traces[row].hexdigest()
                games.append(Game(environment=int(row), score=float(scores[row]), actions=[], trace=trace))
            scores[row], traces[row] = 0.0, xxhash.xxh3_64()
    policy.reset()
    return games
