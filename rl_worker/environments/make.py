"""
The environments of a run: the family of an id, and the wrappers around it.

A family is imported only when it is used: its emulator or package need not be installed.
"""

from common.settings.run_spec import Environment
from rl_worker.environments.interface import Environments
from rl_worker.environments.lost_games import LostGames
from rl_worker.environments.process_guard import guard_children


def make_environments(settings: Environment, *, count: int, with_screen: bool = False) -> Environments:
    """Raises SettingsError naming the flag if the environment does not exist or is not supported."""
    environments = _of_family(settings, count, with_screen)
    if settings.lost_game_reward is None:
        return environments
    return LostGames(environments, settings.lost_game_reward)


def _of_family(settings: Environment, count: int, with_screen: bool) -> Environments:
    match settings.family:
        case "ale":
            from rl_worker.environments.atari import AtariEnvironments

            return AtariEnvironments(settings, count, with_screen)
        case "doom":
            from rl_worker.environments.doom import DoomEnvironments

            guard_children()
            return DoomEnvironments(settings, count, with_screen)
        case "gymnasium":
            from rl_worker.environments.any_gymnasium import GymnasiumEnvironments

            return GymnasiumEnvironments(settings, count, with_screen)
