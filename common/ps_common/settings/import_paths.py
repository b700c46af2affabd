"""
Import paths of a user's own parts: "my_pkg.sub:MyTorso", a module and a name in it.

The last colon is followed by a Python name, or several with dots between them. A Gymnasium id behind a module
("my_games:Line-v0") ends with a version, whose hyphen no Python name has: so an environment's id is one or the other.
Nothing is imported here.
"""

import re
from typing import Annotated

import msgspec

from ps_common.protocol.names import LONGEST_TEXT

_NAMES = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*"
PATTERN = f"{_NAMES}:{_NAMES}"

ImportPath = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT, pattern=rf"^{PATTERN}\Z")]


def is_import_path(text: str) -> bool:
    """Whether it is an ImportPath."""
    return len(text) <= LONGEST_TEXT and re.fullmatch(PATTERN, text) is not None


def module_of(path: str) -> str:
    """The module before the last colon; "" without one."""
    return path.rpartition(":")[0]
