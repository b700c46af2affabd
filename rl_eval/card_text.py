"""
Words of a run as text of a model card. Some are the user's own, such as the name of a preset, and a run may be a
stranger's: whatever they are, YAML reads them as they are, and Markdown shows them, without a link and without HTML.
"""

import json
import re

from ps_common.protocol.names import printable

MARKED = re.compile(r"([\\`*_\[<>|&~$@:])")  # what Markdown, or one of its dialects, may take for more than text
SPACE = re.compile(r"\s+")


def in_yaml(text: str) -> str:
    """A scalar in quotes."""
    quoted = json.dumps(printable(text), ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in quoted)


def in_markdown(text: str) -> str:
    """Plain text on one line, also in a table."""
    return MARKED.sub(r"\\\1", SPACE.sub(" ", printable(text)))


def as_code(text: str) -> str:
    """A code span on one line."""
    shown = SPACE.sub(" ", printable(text))
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence} {shown} {fence}" if "`" in shown or not shown.strip() else f"{fence}{shown}{fence}"
