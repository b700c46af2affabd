"""
The adjustments of a run while it ran: setting, old and new value, T, and the client that made the change.

An adjustment changes the run specification itself, which checkpoints, a standby and workers are given; the history
is kept apart. A learning rate (an entropy weight) that is adjusted holds from that T on, and continues from there in a
straight line to the end of its schedule.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ps_common.errors import SettingsError
from ps_common.protocol.messages import MOST_ADJUSTMENTS, AdjustmentsRecord
from ps_common.protocol.status import AdjustedValue, Adjustment
from ps_common.settings import adjustable
from ps_common.settings.custom_algorithm import is_adjustable
from ps_common.settings.run_settings import flat_settings, with_settings
from ps_common.settings.run_spec import A3CSettings, ActionValuesSettings, CustomAlgorithmSettings, RunSpec
from ps_server.state.guards import Denied
from ps_server.state.progress import Progress

BY_FLAGS = "a flag of ps-server"  # in the history, of a change that is made when the server starts
NO_ADJUSTMENTS = AdjustmentsRecord(
    version=0, paused=False, drained=False, checkpoint_seconds=None, settings=(), history=()
)


def remembered(made: AdjustmentsRecord, adjustment: Adjustment) -> AdjustmentsRecord:
    """The adjustments with one more, which the specification has already."""
    return replace(made, version=made.version + 1, history=(*made.history, adjustment)[-MOST_ADJUSTMENTS:])


def applied(made: AdjustmentsRecord, adjustment: Adjustment, spec: RunSpec) -> tuple[AdjustmentsRecord, RunSpec]:
    """The adjustments with one more, and the run specification after it."""
    setting, after = adjustment.setting, adjustment.after
    if setting in adjustable.NOT_OF_THE_RUN:
        return replace(remembered(made, adjustment), **{setting: after}), spec
    changes = _changes(spec, setting, after, global_steps=adjustment.global_steps)
    settings = tuple(sorted({*made.settings, *changes}))
    return replace(remembered(made, adjustment), settings=settings), with_settings(spec, changes, source="adjustment")


def adjustments_for(
    settings: Mapping[str, Any],
    spec: RunSpec,
    progress: Progress,
    made: AdjustmentsRecord,
    *,
    by: str,
    checkpoint_seconds: float,
    now: float,
) -> list[Adjustment]:
    """
    What ADJUST changes in this run, not applied yet; settings that have their value already are left out.

    Raises Denied that names the first setting that this run cannot have so, and what is allowed.
    """
    try:
        wanted = adjustable.checked(settings)
    except SettingsError as error:
        raise Denied("bad_setting", str(error)) from error
    before: dict[str, AdjustedValue] = _values(spec, progress.global_steps)
    before |= {adjustable.PAUSED: made.paused, adjustable.DRAINED: made.drained}
    before[adjustable.CHECKPOINT_SECONDS] = checkpoint_seconds
    for setting, after in wanted.items():
        if setting not in before:
            others = ", ".join(before)
            has_none = f"{spec.algorithm_name} has none that can be adjusted while a run runs; this run has {others}"
            raise Denied("bad_setting", f"{setting}: {has_none}")
        if isinstance(before[setting], bool) is not isinstance(after, bool) and None not in (before[setting], after):
            raise Denied("bad_setting", f"{setting}: {after!r} is not allowed, where {before[setting]!r} is")
        _check_not_passed(setting, after, progress, now=now)
    return _differences(before, wanted, progress, by=by, now=now)


def undone_by_flags(
    kept: RunSpec, spec: RunSpec, seconds: float | None, progress: Progress, made: AdjustmentsRecord, *, now: float
) -> list[Adjustment]:
    """
    The adjustments of a restored run, `kept`, that the flags of the start undo: they give `spec`, and `seconds` between
    two checkpoints.
    """
    before, after = (_values(one, progress.global_steps) for one in (kept, spec))
    if seconds is not None and made.checkpoint_seconds is not None:
        before[adjustable.CHECKPOINT_SECONDS], after[adjustable.CHECKPOINT_SECONDS] = made.checkpoint_seconds, seconds
    adjusted = {one.setting for one in made.history}
    after = {name: value for name, value in after.items() if name in adjusted}
    return _differences(before, after, progress, by=BY_FLAGS, now=now)


def _differences(
    before: Mapping[str, AdjustedValue], after: Mapping[str, AdjustedValue], progress: Progress, *, by: str, now: float
) -> list[Adjustment]:
    minutes, steps = progress.minutes(now=now), progress.global_steps
    return [
        Adjustment(setting=name, before=before[name], after=value, by=by, global_steps=steps, minutes=minutes)
        for name, value in after.items()
        if value != before[name]
    ]


def _values(spec: RunSpec, global_steps: int) -> dict[str, AdjustedValue]:
    """The settings of this run that may be adjusted, as they are at this T."""
    settings = flat_settings(spec.to_dict())
    values: dict[str, AdjustedValue] = {name: settings[name] for name in adjustable.ADJUSTABLE if name in settings}
    values[adjustable.LEARNING_RATE] = spec.schedule.learning_rate_at(global_steps)
    match spec.algorithm:
        case A3CSettings() as a3c:
            values[adjustable.ENTROPY_WEIGHT] = a3c.entropy_weight_at(global_steps)
        case ActionValuesSettings(final_epsilons=finals):
            values[adjustable.FINAL_EPSILON] = finals[0] if len(finals) == 1 else finals
        case CustomAlgorithmSettings():  # what its settings do, and their bounds, its workers know
            values = {name: value for name, value in values.items() if not name.startswith(adjustable.OF_CUSTOM)}
            values |= {
                name: value
                for name, value in settings.items()
                if name.startswith(adjustable.OF_CUSTOM) and is_adjustable(name, value)
            }
    return values


def _check_not_passed(setting: str, after: AdjustedValue, progress: Progress, *, now: float) -> None:
    """Raises Denied when a limit of the budget is behind the run already: a slip would end it."""
    reached: dict[str, float | None] = {
        adjustable.MAX_STEPS: progress.global_steps,
        adjustable.MAX_MINUTES: progress.minutes(now=now),
        adjustable.UNTIL_RETURN: progress.reached,
    }
    behind = reached.get(setting)
    is_limit = after is not None and (after != 0 or setting == adjustable.UNTIL_RETURN)
    if behind is not None and is_limit and isinstance(after, int | float) and after <= behind:
        allowed = f"above {behind:.10g}, where the run is, or {'none' if setting == adjustable.UNTIL_RETURN else 0}"
        raise Denied("bad_setting", f"{setting}: {after:g} is not allowed; it may be {allowed}. ps-ctl stop ends a run")


def _changes(spec: RunSpec, setting: str, after: AdjustedValue, *, global_steps: int) -> dict[str, Any]:
    if isinstance(spec.algorithm, CustomAlgorithmSettings) and setting.startswith(adjustable.OF_CUSTOM):
        return {setting: after}
    match setting:
        case adjustable.LEARNING_RATE:
            return _rescheduled(spec, setting, after, moves="schedule.anneal", global_steps=global_steps)
        case adjustable.ENTROPY_WEIGHT:
            return _rescheduled(spec, setting, after, moves="algorithm.entropy_anneal", global_steps=global_steps)
        case adjustable.FINAL_EPSILON:
            return {"algorithm.final_epsilons": (after,), "algorithm.epsilon_probabilities": (1.0,)}
        case _:
            return {setting: after}


def _rescheduled(spec: RunSpec, setting: str, after: Any, *, moves: str, global_steps: int) -> dict[str, Any]:
    """
    A setting that moves in a straight line, from this T on: `moves` begins the names of the T at which it begins and
    ends. Set below the end of a falling line, it stays there.
    """
    settings = flat_settings(spec.to_dict())
    is_over = global_steps >= settings[f"{moves}_steps"]
    changes = {setting: after, f"{moves}_start": 0 if is_over else global_steps}
    if is_over:
        changes[f"{moves}_steps"] = 0
    section, _, name = setting.partition(".")
    final = settings[f"{section}.final_{name}"]
    if final is not None and after < final <= settings[setting]:
        changes[f"{section}.final_{name}"] = after
    return changes
