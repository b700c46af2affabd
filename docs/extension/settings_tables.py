"""The settings of a run, section by section: the table of ps_common/settings, with the text that stands below each."""

import inspect
from collections.abc import Iterator, Mapping

from docs.extension.attributes import (
    Attribute,
    attributes_of,
    default_in_words,
    in_words,
    plain,
    table,
    tables,
    values_of,
)
from ps_common.settings.adjustable import ADJUSTABLE
from ps_common.settings.run_settings import NAMED_SECTIONS, flag_of
from ps_common.settings.run_spec import RunSpec
from ps_common.settings.table import TABLE

HEAD = ("flag", "values", "default", "what it does", "who")


def settings() -> str:
    """A heading, a sentence and a table for each section of a run."""
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    found = list(attributes_of(RunSpec))
    is_section = {one.name: any(key.startswith(f"{one.name}.") for key in TABLE) for one in found}
    yield "## The run\n\n" + table(HEAD, [_row(one.name, one) for one in found if not is_section[one.name]])
    for section, kinds in NAMED_SECTIONS.items():
        yield f"## {section}\n\n" + _named(section, kinds)
    for one in found:
        if is_section[one.name] and one.name not in NAMED_SECTIONS:
            kind = type(getattr(RunSpec(), one.name))
            yield f"## {one.name}\n\n{plain(inspect.getdoc(kind) or '')}\n\n" + table(HEAD, _rows(one.name, kind))


def _named(section: str, kinds: Mapping[str, type]) -> str:
    """The kinds of a section with a name: what they share in one table, then a table for each."""
    about = {name: plain(inspect.getdoc(kind) or "") for name, kind in kinds.items()}
    return tables("###", HEAD, about, {name: _rows(section, kind) for name, kind in kinds.items()})


def _rows(section: str, kind: type) -> list[tuple[str, ...]]:
    return [_row(f"{section}.{found.name}", found) for found in attributes_of(kind)]


def _row(setting: str, found: Attribute) -> tuple[str, ...]:
    helps = [getattr(one, "help", None) for one in getattr(found.type, "__metadata__", ())]
    text = next(filter(None, helps), found.text)
    what = plain(text) + _conditions(setting)
    return (
        f"`{flag_of(setting)}`", values_of(found), default_in_words(found.default), what, _changes(setting)
    )  # fmt: skip


def _conditions(setting: str) -> str:
    kinds = TABLE[setting].kinds
    needs = f"; needs {plain(kinds.needs.words)}" if kinds.needs else ""
    return needs + ("; of a preset's game" if kinds.of_a_game is not None else "")


def _changes(setting: str) -> str:
    kinds = TABLE[setting].kinds
    return ("W" if kinds.each_workers else "") + ("S" if kinds.adjustable else "") + ("" if kinds.kept else "R")


def adjustable() -> str:
    """The settings that ps-ctl set takes, and the values that are allowed."""
    rows = [(f"`{name.rpartition('.')[2]}`", f"`{name}`", in_words(kind)) for name, kind in ADJUSTABLE.items()]
    return table(("setting", "whole name", "values"), rows)
