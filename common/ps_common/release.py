"""
The release of ps-rl that this process runs, as peers and files get it: the version, and the commit where it is known,
such as 0.2.0+1a2b3c4d5. A checkout may run where another release is installed, so the installed package is not asked.

A build writes its commit into a file in the folder of this one; of a checkout git knows it.
"""

import re
import subprocess
from functools import cache
from pathlib import Path

VERSION = "0.3.0.dev0"  # pyproject.toml reads it here
DIGITS = 9  # of a commit
BUILT_FROM = "commit.txt"


@cache
def release() -> str:
    """The version, and + with the commit where it is known: a Name of at most 40 characters."""
    here = Path(__file__).resolve()
    try:
        built_from = here.with_name(BUILT_FROM)
        commit = built_from.read_text(encoding="utf-8") if built_from.exists() else _commit_of(here.parents[2])
    except (OSError, ValueError, IndexError, subprocess.CalledProcessError):
        commit = ""
    return f"{VERSION}+{commit[:DIGITS]}" if re.match(rf"[0-9a-f]{{{DIGITS}}}", commit) else VERSION


def is_newer(other: str) -> bool:
    """Whether a release is later than this one, whatever their commits; False for what is none."""
    return _order(other) > _order(VERSION)


def beside(whose: str, other: str, *, here: str = "this program") -> str:
    """
    A clause, with "; " before it, on the releases of two that do not understand each other: of `whose`, such as "the
    server", and of `here`. "" where both have the same, or that of the other is unknown.
    """
    if other in ("", release()):
        return ""
    return f"; {whose} is of ps-rl {other}, and {here} of ps-rl {release()}: bring both to one release"


def of_other(other: str) -> str:
    """A clause, with ", " before it, where a peer is of another release than this program; else ""."""
    return f", of ps-rl {other}" if other not in ("", release()) else ""


def at_this_release(reason: str) -> str:
    """Why a message could not be read here, with the release, which the sender may compare with its own."""
    return f"{reason} (at ps-rl {release()})"


def explained(reason: str) -> str:
    """Why a server could not read a message, with a clause on its release and this one where they differ."""
    said = re.search(r"\(at ps-rl (\S{1,40})\)\Z", reason)
    return reason + beside("the server", said[1] if said else "")


def _order(text: str) -> tuple[int, ...]:
    """A version's three numbers, and whether it is final; () for another text."""
    match = re.match(r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})((?:\.?[a-z]+[0-9]*)*)(?:\+|\Z)", text)
    return (*map(int, match.groups()[:3]), int(not match[4])) if match else ()


def _commit_of(checkout: Path) -> str:
    """The commit that a checkout is at; "" where there is none. Raises OSError, or CalledProcessError of git."""
    if not (checkout / "common").is_dir() or not (checkout / ".git").exists():
        return ""
    command = ["git", "-C", str(checkout), "rev-parse", "HEAD"]
    return subprocess.check_output(command, stderr=subprocess.DEVNULL, encoding="utf-8").strip()
