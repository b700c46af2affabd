"""
Which characters a name or a text may hold. Everything that a peer says ends in logs, files and on terminals.

One rule for all of it: printable ASCII. Control characters could move a cursor, format and direction characters
(U+202E) could make a line read as another one, and look-alikes could make two names read as one.
"""

import re
from typing import Annotated

import msgspec

NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.:@/+-]*\Z"
PRINTABLE = r"^[ -~]*\Z"
LONGEST_NAME, LONGEST_TEXT, LONGEST_SENTENCE = 100, 200, 4000

Name = Annotated[
    str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME, pattern=NAME)
]  # of a worker, a meter, a codec
Text = Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT, pattern=PRINTABLE)]  # a reason, a setting, a host
Address = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_TEXT, pattern=r"^[!-~]+\Z")]  # HOST:PORT
Sentence = Annotated[str, msgspec.Meta(max_length=LONGEST_SENTENCE, pattern=PRINTABLE)]  # of a server, for people


def is_name(text: str) -> bool:
    """Whether a peer may be called so."""
    return len(text) <= LONGEST_NAME and re.match(NAME, text) is not None


def is_text(text: str) -> bool:
    """Whether a peer may say this as a reason, a setting, a host."""
    return len(text) <= LONGEST_TEXT and re.match(PRINTABLE, text) is not None


def as_name(text: str) -> str:
    """The nearest name: each character that none may hold becomes a minus sign."""
    return re.sub(r"[^A-Za-z0-9_.:@/+-]", "-", text).lstrip("-.:@/+")[:LONGEST_NAME] or "unnamed"


def as_text(text: str, longest: int = LONGEST_TEXT) -> str:
    """What may be said of a text of any origin: escapes stand for the characters that none may hold."""
    escaped = re.sub(r"[^ -~]", lambda match: ascii(match[0])[1:-1], text)
    return escaped if len(escaped) <= longest else escaped[: longest - 3] + "..."
