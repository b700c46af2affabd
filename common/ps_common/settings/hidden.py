"""
Values that look like secrets, by the names of their arguments, and what is shown in place of them.

Settings are not made for secrets: files, checkpoints and messages have them as they are, since workers and a resume
need them. What shows settings to people (the page, trackers, model cards, exports, logs) hides such values.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

HIDDEN = "(hidden)"
SECRET = re.compile(r"(?:^|_)(?:api|auth|access|private)?(?:key|token)s?(?:_|$)|secret|passw|passphrase|credential")
WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")  # between two words of a name
OF_A_URL = re.compile(r"(?<=://)(?:[^/\s@]+|[^/\s@:]+:(?!\d+/)[^\s@]+)(?=@)")  # user and password
OF_A_QUERY = re.compile(r"(?<=[?&])([^=&\s]+)=([^&\s#]+)")
FILES_OF_KEYS = ("--curve-", "--keys")  # flags of ours whose values are paths


def is_secret(name: str) -> bool:
    """Whether the name of an argument names a secret: a key, token, secret or password."""
    return SECRET.search(WORD.sub("_", name).lower()) is not None


def hidden(value: Any, name: str = "") -> Any:
    """The value, at any depth, with HIDDEN in place of texts whose names are those of secrets, and in URLs."""
    match value:
        case Mapping():
            return {inner: hidden(one, inner if not is_secret(name) else name) for inner, one in value.items()}
        case list() | tuple():
            return type(value)([hidden(one, name) for one in value])
        case str() if value and is_secret(name):
            return HIDDEN
        case str():
            shown = OF_A_URL.sub(HIDDEN, value)
            return OF_A_QUERY.sub(lambda one: f"{one[1]}={HIDDEN if is_secret(one[1]) else one[2]}", shown)
    return value


def hidden_names(settings: Mapping[str, Any]) -> list[str]:
    """The names in a run's flat settings whose values are hidden: "environment.kwargs.api_key"."""
    found = []
    for name, value in settings.items():
        inner = {f"{name}.{key}": (key, one) for key, one in value.items()} if isinstance(value, Mapping) else {}
        parts = inner or {name: (name.rpartition(".")[2], value)}
        found += [path for path, (key, one) in parts.items() if hidden(one, key) != one]
    return found


def hidden_command(command: str) -> str:
    """A command line with HIDDEN in place of what looks like a secret."""
    try:
        words = shlex.split(command)
    except ValueError:  # a line that was cut
        return OF_A_URL.sub(HIDDEN, command)
    shown, name = [], ""
    for word in words:
        flag, equals, value = word.partition("=")
        if word.startswith("--"):
            name = "" if flag.startswith(FILES_OF_KEYS) else flag.strip("-")
            shown.append(flag + equals + (_hidden_word(value, name) if equals else ""))
        else:
            shown.append(_hidden_word(word, name))
    return command if shown == words else shlex.join(shown)


def _hidden_word(word: str, name: str) -> str:
    if word.startswith("{"):
        with contextlib.suppress(ValueError):
            table = json.loads(word)
            return json.dumps(hidden(table, name)) if hidden(table, name) != table else word
    return str(hidden(word, name))
