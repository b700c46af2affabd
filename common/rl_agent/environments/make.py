"""
The environments of a run: the family of an id, and the wrappers around it.

A family is imported only when it is used: its emulator or package need not be installed.
"""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from ps_common.errors import SettingsError
from ps_common.protocol.names import is_import_path
from ps_common.settings.families import FAMILIES, GYMNASIUM
from ps_common.settings.run_spec import NO_ENVIRONMENT, Environment
from rl_agent.environments.failures import FailureCount
from rl_agent.environments.interface import Environments, close_logged
from rl_agent.environments.process_guard import guard_children

MOST_FRAMES = 108_000  # of a game of any family but Gymnasium's: ALE's limit is the longest


def make_environments(
    settings: Environment, *, count: int, threads: int = 1, with_screen: bool = False, forgives: bool = False
) -> Environments:
    """
    `threads` is how many step the games of a family that is emulated in C++. `forgives`: a failure of one of
    Gymnasium's costs its game; otherwise it is an error. Games of other families do not fail.

    Raises SettingsError naming the flag if the environment does not exist or is not supported.
    """
    if settings.id == NO_ENVIRONMENT:
        raise SettingsError(
            "--environment none: this run plays no game, and its workers are programs of its users "
            "(docs/how-to/anything-with-parameters.md); name a game to play one"
        )
    if settings.family == GYMNASIUM:
        failures = FailureCount(settings.id, settings.most_failures) if forgives else None
        return _of_gymnasium(settings, count, with_screen, failures)
    _refuse_wrappers(settings)
    family = importlib.import_module(f"rl_agent.environments.{FAMILIES[settings.family].module}")
    made: Environments = family.make(settings, count, threads=threads, with_screen=with_screen)
    return made


@contextmanager
def closing(environments: Environments) -> Iterator[Environments]:
    """Closes them at the end of the block."""
    try:
        yield environments
    finally:
        close_logged(environments)


def with_time_limit(settings: Environment, *, at_least: int, given: int | None = None) -> tuple[Environment, int]:
    """
    The same games, of which each ends, and after how many steps at the latest: those `given`, else the limit of the run
    or of the environment, else `at_least`. A vector environment alone ends its games itself.
    """
    if steps := given or settings.max_episode_steps:
        return msgspec.structs.replace(settings, max_episode_steps=steps), steps
    if settings.family != GYMNASIUM:
        return settings, max(at_least, MOST_FRAMES)
    from rl_agent.environments.custom_environment import makes_vectors
    from rl_agent.environments.ids import spec_of

    if not is_import_path(settings.id):
        if limit := spec_of(settings.id).max_episode_steps:
            return settings, limit
    elif makes_vectors(settings.id):
        return settings, at_least
    return msgspec.structs.replace(settings, max_episode_steps=at_least), at_least


def _of_gymnasium(settings: Environment, count: int, with_screen: bool, failures: FailureCount | None) -> Environments:
    from rl_agent.environments.any_gymnasium import GymnasiumEnvironments, in_processes
    from rl_agent.environments.custom_environment import VectorEnvironments, makes_vectors

    if is_import_path(settings.id) and makes_vectors(settings.id):
        return VectorEnvironments(settings, count, with_screen, failures=failures)
    if settings.step_in == "processes" and count > 1:
        guard_children()
        made = in_processes(settings, count, with_screen, forgives=failures is not None)
        return VectorEnvironments(settings, count, with_screen, made, failures=failures)
    return GymnasiumEnvironments(settings, count, with_screen, failures)


def _refuse_wrappers(settings: Environment) -> None:
    """Raises SettingsError if wrappers are to go around the games of a family that cannot have any."""
    if settings.wrapper:
        raise SettingsError(
            f"--wrapper {settings.wrapper[0]}: the games of {settings.id} are stepped together, not as Gymnasium "
            "environments; remove it, or make the game in a custom environment: --environment MODULE:NAME"
        )
