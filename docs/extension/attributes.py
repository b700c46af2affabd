"""
The documented attributes of a class, as its source has them: names, types, defaults, and the text that stands by each.

The text of an attribute is the string below it, or else the comments of its lines and of those right above it.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ps_common.protocol import messages
from ps_common.protocol.names import Name, Sentence, Text


@dataclass(frozen=True)
class Attribute:
    """One attribute: its type as an object, its default as the source writes it ("" without one), and its text."""

    name: str
    type: Any
    default: str
    text: str


def attributes_of(kind: type) -> Iterator[Attribute]:
    """The attributes of a class and of its bases, those of the class itself first; each once."""
    types = get_type_hints(kind, include_extras=True)
    seen: set[str] = set()
    for owner in kind.__mro__:
        if owner.__module__.startswith(("ps_", "rl_")):
            found = [one for one in _own_attributes(owner, types) if one.name not in seen]
            seen |= {one.name for one in found}
            yield from found


def _own_attributes(kind: type, types: dict[str, Any]) -> Iterator[Attribute]:
    source = textwrap.dedent(inspect.getsource(kind))
    lines = source.splitlines()
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    following = [*definition.body[1:], None]
    for node, after in zip(definition.body, following, strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if get_origin(types[node.target.id]) is ClassVar:
                continue
            text = _string(after) or _comment(lines, node)
            default = "" if node.value is None else ast.unparse(node.value)
            yield Attribute(node.target.id, types[node.target.id], default, " ".join(text.split()))


def _string(node: ast.stmt | None) -> str:
    is_string = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return str(node.value.value) if is_string else ""  # type: ignore[union-attr]


def _comment(lines: list[str], node: ast.stmt) -> str:
    first = node.lineno - 1
    while lines[first - 1].lstrip().startswith("#"):
        first -= 1
    found = [re.search(r"(?:^|\s)# (.*)$", line) for line in lines[first : node.end_lineno]]
    return " ".join(match[1] for match in found if match)


# -- types in words ---------------------------------------------------------------------------------------------------


ALIASES = [
    (messages.Count, "count"), (Name, "name"), (Text, "text"), (Sentence, "sentence")
]  # fmt: skip
BOUNDLESS = 1e9  # a bound beyond this one is against nonsense, and left out here


def in_words(kind: Any) -> str:
    """A type for people: "integer 1 to 4,096"."""
    if known := [words for alias, words in ALIASES if alias == kind]:
        return known[0]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return in_words(arguments[0]) + _bounds(arguments[1:])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, UnionType):
        parts = [in_words(part) for part in arguments if part is not NoneType]
        return " or ".join([*parts, "none"] if NoneType in arguments else parts)
    if origin in (tuple, list) and arguments:
        return f"list: {in_words(arguments[0])}"
    if origin is dict:
        return f"map: {in_words(arguments[0])} → {in_words(arguments[1])}"
    names = {bool: "true/false", int: "integer", float: "number", str: "text", bytes: "bytes", Any: "any"}
    return names.get(kind) or f"`{getattr(kind, '__name__', kind)}`".replace("`Path`", "path")


def values_of(found: Attribute) -> str:
    """The type of an attribute for people; "or none" goes without saying where that is the default."""
    words = in_words(found.type)
    return words.removesuffix(" or none") if found.default == "None" else words


def _bounds(metadata: tuple[Any, ...]) -> str:
    ends = [meta for meta in metadata if isinstance(meta, msgspec.Meta)]
    for meta in ends:
        bounds = [
            f"{sign}{value:,}".replace("-", "−")
            for sign, value in (("≥", meta.ge), (">", meta.gt), ("≤", meta.le), ("<", meta.lt))
            if value is not None and abs(value) < BOUNDLESS
        ]
        if [bound[0] for bound in bounds] == ["≥", "≤"]:
            return f" {bounds[0][1:]} to {bounds[1][1:]}"
        if bounds or meta.max_length is not None:
            return "".join(f" {bound}" for bound in bounds) or f" of at most {meta.max_length:,}"
    return ""


def default_in_words(default: str) -> str:
    """A default as its source writes it, in backticks; "" where there is none."""
    if not default:
        return ""
    if made := re.fullmatch(r"msgspec\.field\(default_factory=(\w+)\)", default):
        return f"`{made[1]}()`"
    plain = {"True": "true", "False": "false", "None": "none", "()": "empty", "''": "empty", "b''": "empty"}
    return plain.get(default) or f"`{default.strip(chr(39))}`"


# -- tables -----------------------------------------------------------------------------------------------------------


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table, without blanks around its cells."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"|{'|'.join(cell.replace('|', chr(92) + '|') for cell in line)}|" for line in lines) + "\n"


def tables(level: str, head: tuple[str, ...], about: dict[str, str], rows: dict[str, list[tuple[str, ...]]]) -> str:
    """The rows that several of these share, in one table that names them, then a table for each."""
    owners: dict[tuple[str, ...], list[str]] = {}
    for name, found in rows.items():
        for one in found:
            owners.setdefault(one, []).append(name)
    shared = [(*one, ", ".join(names)) for one, names in owners.items() if len(names) > 1]
    text = f"{level} Of several\n\n{table((*head, 'of'), shared)}\n" if shared else ""
    for name, found in rows.items():
        alone = [one for one in found if len(owners[one]) == 1]
        text += f"{level} {name}\n\n{about[name]}\n\n{table(head, alone) if alone else ''}\n"
    return text


def plain(text: str) -> str:
    """A text of the code, with what Markdown would read as its own escaped, except code in backticks."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*<>\[\]_])", r"\\\1", part) for part in parts)
