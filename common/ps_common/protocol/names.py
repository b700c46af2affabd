"""
The names, texts and numbers of messages and files. Names and texts of a peer are printable
ASCII, since all of them end in logs and on terminals.

Control characters could move a cursor. Format and direction characters (U+202E) could make one line look like another,
and look-alikes two names like one. The integers are whole numbers that every language holds exactly.

An import path names a custom part: "my_pkg.sub:MyTorso", a module and a name in it. A Gymnasium id behind a module
("my_games:Line-v0") ends with a version, whose hyphen no Python name has: so an environment's id is one or the other.
"""

import re
from typing import Annotated

import msgspec

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:@/+-]*\Z"
PRINTABLE = r"^[ -~]*\Z"
LONGEST_NAME, LONGEST_TEXT, LONGEST_SENTENCE = 100, 200, 4000
_DOTTED = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
IMPORT_PATH = f"{_DOTTED}:{_DOTTED}"

Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME, pattern=NAME)
]  # of a worker, a meter, a codec
Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT, pattern=PRINTABLE)]  # a reason, a setting, a host
Address = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT, pattern=r"^[!-~]+\Z")]  # HOST:PORT
Sentence = Annotated[str, msgspec.Meta(max_length=LONGEST_SENTENCE, pattern=PRINTABLE)]  # of a server, for people
ImportPath = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT, pattern=rf"^{IMPORT_PATH}\Z")]

MOST = 2**53 - 1  # the largest integer that encoders of doubles write as an integer
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Sequence = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Signed = Annotated[int, msgspec.Meta(ge=-MOST, le=MOST)]
# A step's share of a return, either way. The largest rewards of the Atari games are below it, and float32 holds sums of
# the squares of discounted returns of it.
MOST_REWARD = 1e8


def is_name(text: str) -> bool:
    """Whether it is a Name."""
    return len(text) <= LONGEST_NAME and re.match(NAME, text) is not None


def is_text(text: str) -> bool:
    """Whether it is a Text."""
    # As PRINTABLE, ten times as fast: a run has sixty texts, and a thousand workers join at once.
    return len(text) <= LONGEST_TEXT and text.isascii() and text.isprintable()


def as_name(text: str) -> str:
    """The nearest Name: each other character becomes a minus sign."""
    return re.sub(r"[^A-Za-z0-9_.:@/+-]", "-", text).lstrip("-.:@/+")[:LONGEST_NAME] or "unnamed"


def printable(text: str) -> str:
    """The text as UTF-8 can hold it: escapes stand for bytes of a path that are not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def as_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """A text of any origin as a Text: escapes stand for other characters."""
    escaped = re.sub(r"[^ -~]", lambda match: ascii(match[0])[1:-1], text)
    return escaped if len(escaped) <= longest else escaped[: longest - 3] + "..."


def is_import_path(text: str) -> bool:
    """Whether it is an ImportPath."""
    return len(text) <= LONGEST_TEXT and re.fullmatch(IMPORT_PATH, text) is not None


def module_of(path: str) -> str:
    """The module before the last colon of an import path; "" without one."""
    return path.rpartition(":")[0]
