"""
The table of settings: each by its name, with its type, and the kinds that annotate it in run_spec.py.

A setting that several algorithms or optimizers have is one row. The settings of a custom algorithm have none: the kinds
of the section hold for them.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from ps_common.settings.kinds import KEPT, Kinds
from ps_common.settings.run_spec import RunSpec


class Setting(msgspec.Struct, frozen=True):
    """One row; the type has its bounds."""

    type: Any
    kinds: Kinds


def rows_of(spec: type[msgspec.Struct]) -> Iterator[tuple[str, Setting]]:
    """The settings of a run, with those of all algorithms and optimizers, and a row for each section."""
    for section in msgspec.structs.fields(spec):
        yield section.name, Setting(section.type, _kinds_in(section.type))
        kind = _bare(section.type)
        structs = [one for one in (kind, *get_args(kind)) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
        if len(structs) > 1:  # its name decides which settings there are
            literal: Any = Literal
            names = literal[tuple(struct.__struct_config__.tag for struct in structs)]
            yield f"{section.name}.name", Setting(names, _kinds_in(section.type, KEPT))
        for struct in structs:
            for field in msgspec.structs.fields(struct):
                yield f"{section.name}.{field.name}", Setting(field.type, _kinds_in(section.type, field.type))


def kinds_of(setting: str) -> Kinds:
    """The kinds of a setting, "algorithm.unroll_length"."""
    row = TABLE.get(setting) or TABLE.get(setting.partition(".")[0])
    return Kinds() if row is None else row.kinds


def choices_of(setting: str) -> tuple[str, ...]:
    """The words that a setting may be; () where it is not a choice of a few."""
    kind = _bare(TABLE[setting].type) if setting in TABLE else None
    return get_args(kind) if get_origin(kind) is Literal else ()


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _kinds_in(*places: Any) -> Kinds:
    """The kinds that annotate types; the last type wins."""
    given: dict[str, Any] = {}
    for place in places:
        for meta in (place, *getattr(place, "__metadata__", ())):
            given |= (isinstance(meta, msgspec.Meta) and meta.extra) or {}
    return Kinds(**given)


TABLE: Mapping[str, Setting] = dict(rows_of(RunSpec))
