"""Prints what pip is to install: the dependencies of pyproject.toml, and those of the extras named in one word, a,b."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def of_extras(names: str) -> Iterator[str]:
    """Their requirements; an extra may name others of this project."""
    for name in filter(None, (name.strip() for name in names.split(","))):
        if name not in EXTRAS:
            sys.exit(f"EXTRAS: there is no extra {name!r}; there are {', '.join(EXTRAS)}")
        for requirement in EXTRAS[name]:
            own = re.fullmatch(rf"{PROJECT['name']}\[(.+)\]", requirement)
            yield from of_extras(own[1]) if own else [requirement]


print(*dict.fromkeys([*PROJECT["dependencies"], *of_extras(*sys.argv[1:] or [""])]), sep="\n")
