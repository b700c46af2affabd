"""The settings of a run, section by section, as common/ps_common/settings/run_spec.py defines them."""

import inspect
from collections.abc import Iterator

from docs.extension.attributes import attributes_of, default_in_words, in_words, plain, table
from ps_common.settings.adjustable import ADJUSTABLE
from ps_common.settings.run_settings import flag_of
from ps_common.settings.run_spec import ALGORITHM_SETTINGS, OPTIMIZER_SETTINGS, RunSpec

HEAD = ("setting", "flag", "values", "default", "what it does")
FIRST = {
    "preset": "the name of the preset that the run started from",
    "experiment": "name of what is tried: of the folder of its runs, and of their curve in plots",
    "seed": "seed of weights, environments and sampling; each worker derives its own from it",
}


def settings() -> str:
    """A heading, a sentence and a table for each section of a run."""
    return "\n\n".join(_sections())


def _sections() -> Iterator[str]:
    rows = []
    sections: list[tuple[str, type]] = []
    for found in attributes_of(RunSpec):
        if found.name in FIRST:
            row = (f"`{found.name}`", f"`--{found.name}`", in_words(found.type), default_in_words(found.default))
            rows.append((*row, FIRST[found.name]))
        elif found.name not in ("algorithm", "optimizer"):
            sections.append((found.name, found.type))
    yield "## The run\n\n" + table(HEAD, rows)
    yield from (_section(f"algorithm.name = {name}", "algorithm", kind) for name, kind in ALGORITHM_SETTINGS.items())
    yield from (_section(f"optimizer.name = {name}", "optimizer", kind) for name, kind in OPTIMIZER_SETTINGS.items())
    yield from (_section(name, name, kind) for name, kind in sections)


def _section(title: str, section: str, kind: type) -> str:
    rows = []
    for found in attributes_of(kind):
        setting = f"{section}.{found.name}"
        changes = " (also with `ps-ctl set`)" if setting in ADJUSTABLE else ""
        row = (f"`{setting}`", f"`{flag_of(setting)}`", in_words(found.type), default_in_words(found.default))
        rows.append((*row, plain(found.text) + changes))
    text = f"## {title}\n\n{plain(inspect.getdoc(kind) or '')}\n\n"
    return text + (table(HEAD, rows) if rows else "It has no settings.\n")


def adjustable() -> str:
    """The settings that ps-ctl set takes, and the values that are allowed."""
    rows = [(f"`{name.rpartition('.')[2]}`", f"`{name}`", str(kind)) for name, kind in ADJUSTABLE.items()]
    return table(("setting", "whole name", "values"), rows)
