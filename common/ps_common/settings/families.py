"""
The families of environments that are stepped in a way of their own. Every other id is one of Gymnasium's.

A family is a line here and a file in common/rl_agent/environments, whose function
`make(settings, count, *, threads, with_screen)` returns its environments, or raises SettingsError.
"""

from typing import NamedTuple

GYMNASIUM = "gymnasium"  # the family of every other id


class Family(NamedTuple):
    """What is known of a family without its packages."""

    prefix: str  # its ids begin so
    module: str  # in rl_agent.environments
    registers: str = ""  # the module that registers its ids with Gymnasium when it is imported
    extra: str = ""  # of ps-rl, which installs its packages
    scheme: str = ""  # --preprocessing auto, of a family that shows frames: a step is several, and some are stacked


FAMILIES: dict[str, Family] = {
    "ale": Family("ALE/", "atari", registers="ale_py", scheme="atari84"),
    "doom": Family("Vizdoom", "doom", registers="vizdoom.gymnasium_wrapper", extra="doom", scheme="doom84"),
}
OF_FRAMES = tuple(name for name, family in FAMILIES.items() if family.scheme)


def family_of(name: str) -> str:
    """The family of an id without its module."""
    return next((family for family, row in FAMILIES.items() if name.startswith(row.prefix)), GYMNASIUM)
