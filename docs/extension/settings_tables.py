"""The settings of a run, section by section: the table of ps_common/settings, with the text that stands below each."""

import inspect
from collections.abc import Iterator

from docs.extension.attributes import Attribute, attributes_of, default_in_words, in_words, plain, table
from ps_common.settings.adjustable import ADJUSTABLE
from ps_common.settings.run_settings import NAMED_SECTIONS, flag_of
from ps_common.settings.run_spec import RunSpec
from ps_common.settings.table import TABLE, allowed

HEAD = ("setting", "flag", "values", "default", "what it does", "who changes it")


def settings() -> str:
    """A heading, a sentence and a table for each section of a run."""
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    found = list(attributes_of(RunSpec))
    is_section = {one.name: any(key.startswith(f"{one.name}.") for key in TABLE) for one in found}
    yield "## The run\n\n" + table(HEAD, [_row(one.name, one) for one in found if not is_section[one.name]])
    for section, kinds in NAMED_SECTIONS.items():
        yield from (_section(f"{section}.name = {name}", section, kind) for name, kind in kinds.items())
    for one in found:
        if is_section[one.name] and one.name not in NAMED_SECTIONS:
            yield _section(one.name, one.name, type(getattr(RunSpec(), one.name)))


def _section(title: str, section: str, kind: type) -> str:
    rows = [_row(f"{section}.{found.name}", found) for found in attributes_of(kind)]
    text = f"## {title}\n\n{plain(inspect.getdoc(kind) or '')}\n\n"
    return text + (table(HEAD, rows) if rows else "It has no settings.\n")


def _row(setting: str, found: Attribute) -> tuple[str, ...]:
    helps = [getattr(one, "help", None) for one in getattr(found.type, "__metadata__", ())]
    text = next(filter(None, helps), found.text)
    what = plain(text) + _conditions(setting)
    values = in_words(TABLE[setting].type)
    return f"`{setting}`", f"`{flag_of(setting)}`", values, default_in_words(found.default), what, _changes(setting)


def _conditions(setting: str) -> str:
    kinds = TABLE[setting].kinds
    needs = f"; needs {plain(kinds.needs.words)}" if kinds.needs else ""
    return needs + ("; belongs to the game of a preset" if kinds.of_a_game is not None else "")


def _changes(setting: str) -> str:
    kinds = TABLE[setting].kinds
    at_a_resume = "" if kinds.kept else "a resume"
    by_hand = "`ps-ctl set`" if kinds.adjustable else ""
    return ", ".join(filter(None, ("each worker" if kinds.each_workers else "", by_hand, at_a_resume))) or "nobody"


def adjustable() -> str:
    """The settings that ps-ctl set takes, and the values that are allowed."""
    rows = [(f"`{name.rpartition('.')[2]}`", f"`{name}`", allowed(kind)) for name, kind in ADJUSTABLE.items()]
    return table(("setting", "whole name", "values"), rows)
