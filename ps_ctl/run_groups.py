"""
Groups of runs that are drawn together: those of one experiment, preset, settings and number of workers. The label of a
group names the settings in which it differs from other groups of the same name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ps_common.protocol.names import printable
from ps_common.settings.run_settings import flag_of
from ps_common.settings.table import kinds_of
from ps_ctl.run_curves import RunCurves

MOST_DIFFERENCES = 4  # that a label names
WORKERS = "workers"  # not in run.toml: workers come and go


@dataclass(frozen=True)
class RunGroup:
    """Runs of the same settings."""

    label: str
    runs: tuple[RunCurves, ...]


def group_runs(runs: Sequence[RunCurves]) -> list[RunGroup]:
    """The groups, in the order of their first runs."""
    names: dict[str, dict[str, list[RunCurves]]] = {}
    for run in runs:
        name = f"{run.experiment}: {run.preset}" if run.experiment else run.preset
        names.setdefault(name, {}).setdefault(repr(sorted(_settings(run).items())), []).append(run)
    groups: list[RunGroup] = []
    for name, kinds in names.items():
        settings = [_settings(members[0]) for members in kinds.values()]
        differing = _differing(settings)
        for members, own in zip(kinds.values(), settings, strict=True):
            words = [name, *_in_words(own, differing)]
            which = members[0].folder if len(members) == 1 else f"{len(members)} runs"
            groups.append(RunGroup(printable(f"{', '.join(words)} ({which})"), tuple(members)))
    return groups


def _settings(run: RunCurves) -> dict[str, Any]:
    """The settings that separate groups."""
    return {key: value for key, value in run.settings.items() if not kinds_of(key).per_run} | {WORKERS: run.workers}


def _differing(settings: Sequence[dict[str, Any]]) -> list[str]:
    """Keys of the settings that differ. Where algorithms differ, only their names are listed."""
    keys = list(dict.fromkeys(key for own in settings for key in own))
    differing = [key for key in keys if len({repr(own.get(key)) for own in settings}) > 1]
    renamed = tuple(f"{key.removesuffix('name')}" for key in differing if key.endswith(".name"))
    return [key for key in differing if key.endswith(".name") or not key.startswith(renamed or ("?",))]


def _in_words(own: dict[str, Any], differing: Iterable[str]) -> list[str]:
    words = [f"{flag_of(key).removeprefix('--')} {_short(own.get(key))}" for key in differing]
    more = len(words) - MOST_DIFFERENCES
    return words if more <= 0 else [*words[:MOST_DIFFERENCES], f"{more} more"]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
