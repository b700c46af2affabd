"""`evaluate`: full games of a policy in this process, played as `rl-eval` plays them."""

from contextlib import ExitStack
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TimeLimit

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from ps_rl.environment import MASK, run_of
from rl_agent.environments.custom_environment import SAME_STEP
from rl_agent.environments.failures import NumberCheck
from rl_agent.environments.interface import DEFAULT_STEPS_PER_SECOND, Environments, Stepped
from rl_agent.environments.make import closing, make_environments, with_time_limit
from rl_agent.environments.process_guard import leave_children_alone
from rl_agent.environments.spaces import Actions, Observations
from rl_eval.games import MOST_ENVIRONMENTS, MOST_GAME_STEPS, Beside, Result, play, summary
from rl_eval.policy import Policy
from rl_eval.trained import agent_of


def evaluate(
    policy: Policy,
    env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any] | None = None,
    *,
    episodes: int = 100,
    greedy: bool = False,
    epsilon: float | None = None,
    seed: int = 1_000_000,
    max_episode_steps: int | None = None,
) -> Result:
    """
    The scores of `episodes` full games, with their mean and its interval, played in this process.

        evaluate(policy, make_env(policy, count=8, sticky_actions=0.25), episodes=20)

    Without `env` these are the games that `Run.evaluate` and `rl-eval` play with this seed, in the environment of the
    policy's run. `env` shows what the environment of the run does, or what the policy sees, as those of `make_env` do,
    and is left open; a vector environment plays as many games side by side, each environment its share.

    `epsilon` is the share of random actions of value-based methods, 0.05 where it is None. Games end after
    `max_episode_steps`, else at the limit of the run or of the environment, else after 27,000 steps. Raises
    SettingsError for what cannot be played, and PsRlError for a vector environment that goes on beyond that.
    """
    if episodes < 1:
        raise SettingsError(f"evaluate: episodes={episodes}: must be 1 or more")
    with ExitStack() as opened:
        if env is None:
            settings, most_steps = _of_the_run(policy, max_episode_steps)
            environments = make_environments(settings, count=min(episodes, MOST_ENVIRONMENTS), forgives=True)
            opened.enter_context(closing(environments))
        else:
            environments, most_steps = _given(policy, env, max_episode_steps)
        name = policy.run.environment.id if env is None else environments.description["environment"]
        opened.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(seed)
        agent, share = agent_of(policy.exported, policy.exported.spaces, epsilon=epsilon, greedy=greedy, seed=seed)
        beside = Beside()
        how: dict[str, Any] = {"most_steps": most_steps, "keeps_actions": False, "beside": beside}
        games = play(agent, environments, episodes=episodes, greedy=greedy, seed=seed, **how)
        return summary(list(games), environment=name, greedy=greedy, epsilon=share, beside=beside)


def _of_the_run(policy: Policy, max_episode_steps: int | None) -> tuple[Environment, int]:
    """The environment of the policy's run, and the steps after which a game in it ends. Raises SettingsError."""
    run = run_of(policy, {}, ())
    leave_children_alone()
    return with_time_limit(run.environment, at_least=MOST_GAME_STEPS, given=max_episode_steps)


def _given(policy: Policy, env: Any, max_episode_steps: int | None) -> tuple[Environments, int]:
    """The user's environment as `play` takes one, and the steps after which a game in it ends. Raises SettingsError."""
    if not isinstance(env, VectorEnv):
        limit = (env.spec and env.spec.max_episode_steps) or MOST_GAME_STEPS
        limited = TimeLimit(env, max_episode_steps or limit)
        one = SyncVectorEnv([lambda: limited], autoreset_mode=AutoresetMode.SAME_STEP)
        return GivenEnvironments(policy, one, env), max_episode_steps or limit
    if max_episode_steps is not None:
        raise SettingsError("evaluate: max_episode_steps: a vector environment ends its games itself; remove it")
    mode = env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
    if AutoresetMode(mode) != AutoresetMode.SAME_STEP:
        raise SettingsError(f"evaluate: {env}: {SAME_STEP}")
    return GivenEnvironments(policy, env, env), MOST_GAME_STEPS


class GivenEnvironments:
    """A vector environment that shows what a policy sees."""

    def __init__(self, policy: Policy, vector: VectorEnv[Any, Any, Any], named: Any) -> None:
        """`named`: what the games are called after."""
        self._policy, self._vector = policy, vector
        self.count = vector.num_envs
        self.observations, self.actions = policy.observations, policy.actions
        self.steps_per_second = float(vector.metadata.get("render_fps") or DEFAULT_STEPS_PER_SECOND)
        self.description = {"environment": named.spec.id if named.spec else type(named.unwrapped).__name__}
        self._numbers = NumberCheck(self.description["environment"], self.observations, None)

    def reset(self, seed: int | None) -> Observations:
        return self._numbers.first(self._seen(*self._vector.reset(seed=seed)))

    def step(self, actions: Actions) -> Stepped:
        seen, rewards, terminated, truncated, info = self._vector.step(self.actions.native(actions))
        rewards = np.asarray(rewards, np.float32)  # a copy, or of a type that the environment does not write into
        stepped = Stepped(self._seen(seen, info), rewards, np.array(terminated), np.array(truncated), None)
        return self._numbers.step(stepped)

    def screen(self) -> Any:
        return self._vector.render()

    def close(self) -> None:
        """It is the user's."""

    def _seen(self, observations: Any, info: dict[str, Any]) -> Observations:
        native = self._policy.observations.native
        in_info = native is not None and native.mask is not None and native.mask.in_info
        # make_env shows a tuple of the parts, of which the mask is one.
        mask = info.get(MASK) if in_info and not isinstance(observations, tuple) else None
        return self._policy.seen(observations, mask)[0].numpy()
