"""The public names of the Python interface: those of `ps_rl.__all__`, with their signatures and docstrings."""

import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import ps_rl


def names() -> str:
    """A section for each public name; errors, which have a sentence each, in one at the end."""
    found = {name: getattr(ps_rl, name) for name in ps_rl.__all__}
    errors = {name: value for name, value in found.items() if inspect.isclass(value) and issubclass(value, Exception)}
    sections = [_section(name, value) for name, value in found.items() if name not in errors]
    lines = [f"- `{name}`: {_markdown(inspect.getdoc(value) or '')}" for name, value in sorted(errors.items())]
    return "\n\n".join([*sections, "## Errors\n\n" + "\n".join(lines) if lines else ""])


def _section(name: str, value: Any) -> str:
    text = f"## {name}\n\n{_signature(name, value)}\n\n{_markdown(inspect.getdoc(value) or '')}\n\n"
    return text + "\n\n".join(_members(name, value)) if inspect.isclass(value) else text


def _members(owner: str, kind: type) -> Iterator[str]:
    for name, value in vars(kind).items():
        if name.startswith("_") or not inspect.getdoc(value):
            continue
        if isinstance(value, property):
            yield f"### {owner}.{name}\n\n{_markdown(inspect.getdoc(value) or '')}"
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            method = getattr(kind, name)
            about = _markdown(inspect.getdoc(method) or "")
            yield f"### {owner}.{name}\n\n{_signature(f'{owner}.{name}', method)}\n\n{about}"


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
