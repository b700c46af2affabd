"""
The true score below wrappers: what the rewards of the environment itself come to in a game, whatever `--wrapper` makes
of them for the learner. It is one of the metrics of the game.
"""

from typing import Any

import gymnasium
import numpy as np

from rl_agent.games import METRICS

TRUE_RETURN = "true_return"


class TrueReturn(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Stands between an environment and the wrappers of the run; each info has the sum so far, and so the last."""

    _sum = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._sum = 0.0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        seen, reward, terminated, truncated, info = self.env.step(action)
        self._sum += float(np.asarray(reward, np.float64).sum())
        given = info.get(METRICS)
        metrics = {**given, TRUE_RETURN: self._sum} if isinstance(given, dict) else {TRUE_RETURN: self._sum}
        return seen, reward, terminated, truncated, {**info, METRICS: metrics}
