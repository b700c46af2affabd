"""
Custom hooks, `--hook my_pkg:MyHooks`: what they may have, and how they are called.

A worker that has the flag calls `on_episode` and `on_unroll` in its own process, between two unrolls: a slow one slows
that worker down. An error in a hook is logged, and training goes on.
"""

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ps_common.errors import SettingsError
from ps_common.meters import POWERS_OF_TEN
from ps_common.program.reasons import place_of
from ps_common.protocol.messages import Episode
from ps_common.protocol.names import is_import_path
from rl_agent.environments.imports import custom_part

if TYPE_CHECKING:
    from rl_agent.rollouts import Trajectory

# The methods, each with its arguments.
CALLED = {"on_episode": ("game",), "on_unroll": ("trajectory", "meters")}
METHODS = ", ".join(f"{name}({', '.join(arguments)})" for name, arguments in CALLED.items())
NEEDED = f"hooks are a class, made without arguments, that has at least one of {METHODS}"

log = logging.getLogger("hooks")


@dataclass(frozen=True)
class Game:
    """A game that has ended."""

    score: float  # true, unclipped
    steps: int
    global_steps: int  # of all workers when it ended, as in episodes.jsonl
    worker: int  # its number in the run


class Hooks:
    """All hooks that a command line names."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Raises SettingsError that says what is missing."""
        self._errors = 0
        self._made = [_made(path) for path in paths]
        self._has_unrolls = any(hasattr(hook, "on_unroll") for hook in self._made)

    def games_ended(self, episodes: Sequence[Episode], *, global_steps: int, worker: int) -> None:
        """Call each `on_episode`."""
        for episode in episodes:
            steps = episode.global_steps or global_steps
            self._call("on_episode", Game(episode.episode_return, episode.length, steps, worker))

    def unroll_learned(self, trajectory: "Trajectory", meters: Callable[[], dict[str, float]]) -> None:
        """Call each `on_unroll`."""
        if self._has_unrolls:
            self._call("on_unroll", trajectory, meters())

    def _call(self, name: str, *arguments: Any) -> None:
        for hook in self._made:
            called = getattr(hook, name, None)
            if called is None:
                continue
            try:
                called(*arguments)
            except (Exception, SystemExit) as error:
                self._errors += 1
                if self._errors in POWERS_OF_TEN:
                    log.warning(
                        "--hook: %s of %s failed%s, %d times by now: %r",
                        name, type(hook).__name__, place_of(error), self._errors, error,
                    )  # fmt: skip


def _made(path: str) -> Any:
    if not is_import_path(path):
        raise SettingsError(f"--hook {path}: must be MODULE:NAME; {NEEDED}")
    hook = custom_part(path, flag="--hook", kind=NEEDED)
    try:
        made = hook()
    except TypeError as error:
        raise SettingsError(f"--hook {path}: {error}; {NEEDED}") from error
    called = [name for name in CALLED if hasattr(made, name)]
    if not called:
        raise SettingsError(f"--hook {path}: has none of these methods; {NEEDED}")
    if never := [name for name in dir(made) if name.startswith("on_") and name not in CALLED]:
        raise SettingsError(f"--hook {path}: nothing calls {', '.join(never)}; {NEEDED}")
    for name in called:
        try:
            inspect.signature(getattr(made, name)).bind(*CALLED[name])
        except TypeError as error:
            given = ", ".join(CALLED[name])
            raise SettingsError(f"--hook {path}: {name} cannot be called with ({given}): {error}; {NEEDED}") from error
    return made
