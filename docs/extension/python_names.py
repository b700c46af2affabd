"""The public names of the Python interface: those of `ps_rl.__all__`, with their signatures and docstrings."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from types import UnionType
from typing import Any, get_args

import ps_rl


def names() -> str:
    """A section for each public name, in three chapters; errors have a sentence each."""
    chapters = [
        f"## {title}\n\n" + "\n\n".join(_section(name, getattr(ps_rl, name)) for name in places)
        for title, places in (
            ("To train and play", ps_rl.TO_TRAIN_AND_PLAY),
            ("For custom parts", ps_rl.FOR_CUSTOM_PARTS),
        )
    ]
    lines = [f"- `{name}`: {_markdown(inspect.getdoc(getattr(ps_rl, name)) or '')}" for name in ps_rl.ERRORS]
    return "\n\n".join([*chapters, "## Errors\n\n" + "\n".join(lines)])


def _section(name: str, value: Any) -> str:
    if isinstance(value, UnionType):  # of classes with the same methods, which the first explains
        kinds = get_args(value)
        listed = ", ".join(f"`{kind.__name__}`" for kind in kinds)
        return f"### {name}\n\nOne of {listed}.\n\n" + _described(kinds[0].__name__, kinds[0])
    return f"### {name}\n\n" + _described(name, value)


def _described(name: str, value: Any) -> str:
    """The signature, the docstring, the fields and the methods. A record has its fields in place of a signature."""
    fields = getattr(value, "__struct_fields__", None) or tuple(getattr(value, "__dataclass_fields__", ()))
    about = _markdown(inspect.getdoc(value) or "")
    if not inspect.isclass(value):
        return f"{_signature(name, value)}\n\n{about}"
    head = f"Fields: {', '.join(f'`{field}`' for field in fields)}." if fields else _signature(name, value)
    return "\n\n".join([head, about, *_members(name, value)])


def _members(owner: str, kind: type) -> Iterator[str]:
    for name, value in vars(kind).items():
        if name.startswith("_") or not inspect.getdoc(value):
            continue
        if isinstance(value, property):
            yield f"#### {owner}.{name}\n\n{_markdown(inspect.getdoc(value) or '')}"
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            method = getattr(kind, name)
            about = _markdown(inspect.getdoc(method) or "")
            yield f"#### {owner}.{name}\n\n{_signature(f'{owner}.{name}', method)}\n\n{about}"


def _signature(name: str, value: Any) -> str:
    """How it is called, as code; one parameter a line where a line is too short."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    whole = _short(f"{name}{signature.replace(parameters=parameters)}").replace(" -> None", "")
    if len(whole) > 100:
        head, tail = name + "(", whole[whole.rindex(")") :]
        stars = [at for at, one in enumerate(parameters) if one.kind is one.KEYWORD_ONLY][:1]
        lines = [f"    {_short(str(one))}," for one in parameters]
        for at in stars:
            lines.insert(at, "    *,")
        whole = "\n".join([head, *lines, tail])
    return f"```python\n{whole}\n```"


def _short(text: str) -> str:
    """Types without the modules that they are in."""
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text)


def _markdown(docstring: str) -> str:
    """A docstring, whose indented parts are code."""
    blocks = []
    for is_code, lines in groupby(docstring.splitlines(), key=lambda line: line.startswith("    ")):
        text = "\n".join(lines)
        blocks.append(f"```python\n{textwrap.dedent(text)}\n```" if is_code else text)
    return "\n".join(blocks)
