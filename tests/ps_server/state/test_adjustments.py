"""Settings that are changed while a run runs: what may be, what it does, and what a checkpoint keeps of it."""

from typing import Any

import pytest

from ps_common.protocol.messages import Episode
from ps_common.protocol.record import record_from_json, record_to_json
from ps_common.settings.table import kinds_of
from ps_server.state.guards import Denied
from ps_server.state.training_run import TrainingRun
from tests.ps_server.transcripts import SCHEMA, a_lineage, a_run, vector
from tests.rows import row

NOW = 500.0
ANNEALED = {"learning_rate": 1.0, "final_learning_rate": 0.2, "anneal_steps": 1000}
Q_LEARNING = {"name": "n_step_q", "final_epsilons": [0.1, 0.5], "epsilon_probabilities": [0.5, 0.5]}


def a_training_run(*, global_steps: int = 0, **sections: Any) -> TrainingRun:
    run = TrainingRun(a_run(**sections), a_lineage())
    run.seed(SCHEMA, vector(0, 0, 0))
    run.progress.global_steps = run.progress.updates = global_steps
    return run


def adjust(run: TrainingRun, *, now: float = NOW, **settings: Any) -> list[tuple[str, Any, Any]]:
    """(setting, before, after) of each adjustment; in names a double underscore stands for the dot."""
    wanted = {name.replace("__", "."): value for name, value in settings.items()}
    adjustments = run.adjust(wanted, by="me", checkpoint_seconds=30.0, now=now)
    assert all(one.by == "me" and one.global_steps == run.progress.global_steps for one in adjustments)
    return [(one.setting, one.before, one.after) for one in adjustments]


def again(run: TrainingRun, *, now: float = NOW) -> TrainingRun:
    """The run that a checkpoint of this one keeps."""
    return TrainingRun.restored(run.weights.vectors(), record_from_json(record_to_json(run.record(now=now))), now=now)


# -- what an adjustment does ------------------------------------------------------------------------------------------


def test_an_adjusted_learning_rate_goes_on_to_the_end_of_its_schedule() -> None:
    run = a_training_run(global_steps=500, schedule=ANNEALED)
    assert adjust(run, schedule__learning_rate=0.4) == [("schedule.learning_rate", pytest.approx(0.6), 0.4)]
    rates = {}
    for steps in (500, 750, 1000, 2000):
        run.progress.global_steps = steps
        rates[steps] = run.learning_rate
    assert rates == pytest.approx({500: 0.4, 750: 0.3, 1000: 0.2, 2000: 0.2})


def test_a_worker_that_was_away_meanwhile_takes_over_all_that_an_adjustment_changes() -> None:
    """The final entropy weight too, which moves with a weight that is set below it."""
    falling = {"name": "a3c", "entropy_weight": 0.02, "final_entropy_weight": 0.01, "entropy_anneal_steps": 1000}
    for algorithm, adjusted in (falling, "algorithm.entropy_weight"), (Q_LEARNING, "algorithm.final_epsilon"):
        run = a_training_run(global_steps=500, algorithm=algorithm)
        run.adjust({adjusted: 0.005, "schedule.learning_rate": 0.1}, by="me", checkpoint_seconds=30.0, now=NOW)
        assert len(run.adjustments.settings) > 2
        assert not any(kinds_of(setting).built_in for setting in run.adjustments.settings)


# -- what a checkpoint keeps ------------------------------------------------------------------------------------------


def test_a_restored_run_keeps_what_was_adjusted_and_its_history() -> None:
    run = a_training_run(global_steps=500, schedule=ANNEALED, algorithm=Q_LEARNING)
    adjust(run, schedule__learning_rate=0.4, algorithm__final_epsilon=0.02, checkpoint_seconds=7, paused=True)
    restored = again(run)
    assert restored.spec == run.spec
    assert restored.learning_rate == 0.4
    assert restored.adjustments.history == run.adjustments.history
    assert len(restored.adjustments.history) == restored.adjustments.version == 4
    assert (restored.adjustments.paused, restored.adjustments.checkpoint_seconds) == (True, 7.0)
    assert "schedule.learning_rate" in restored.adjustments.settings
    assert restored.record(now=NOW) == run.record(now=NOW)


def test_the_history_is_bounded() -> None:
    run = a_training_run()
    for number in range(1, 300):
        adjust(run, checkpoint_seconds=30 + number)
    assert (len(run.adjustments.history), run.adjustments.version) == (100, 299)
    assert run.adjustments.history[-1].after == 329.0


# -- what is refused --------------------------------------------------------------------------------------------------

NAN, INF = float("nan"), float("inf")


def test_what_is_out_of_range_is_refused_with_what_is_expected() -> None:
    for setting, values in [
        ("schedule.learning_rate", [NAN, INF, -INF, -0.1, 2e12, True, "0.1", None, (0.1,)]),
        ("algorithm.entropy_weight", [NAN, INF, -0.1, "", False, None]),
        ("budget.max_steps", [NAN, INF, -1, 0.5, 2**54, True, None]),
        ("budget.max_minutes", [NAN, INF, -1, 2e12, None]),
        ("budget.until_return", [NAN, INF, -INF, 2e12, True, "none"]),
        ("paused", [0, 1, "true", None, NAN]),
        ("checkpoint_seconds", [NAN, 0, -1, 0.01, 2e9, None]),
    ]:
        with row(setting, values):
            run = a_training_run()
            before = run.record(now=NOW)
            for value in values:
                with pytest.raises(Denied, match=setting) as denied:
                    run.adjust({setting: value}, by="me", checkpoint_seconds=30.0, now=NOW)
                assert denied.value.code == "bad_setting"
                assert "expected `" in str(denied.value)
            assert run.record(now=NOW) == before


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("schedule.learning_rte", "did you mean schedule.learning_rate"),
        ("environment.id", "algorithm.entropy_weight, "),
        ("algorithm.unroll_length", "can be adjusted while a run runs"),
        ("algorithm.final_epsilon", "a3c has none that can be adjusted while a run runs; this run has algorithm."),
    ],
)
def test_a_setting_that_cannot_be_adjusted_is_refused_with_those_that_can(setting: str, advice: str) -> None:
    with pytest.raises(Denied, match=setting) as denied:
        a_training_run().adjust({setting: 1}, by="me", checkpoint_seconds=30.0, now=NOW)
    assert advice in str(denied.value)


def test_of_several_settings_all_are_adjusted_or_none() -> None:
    run = a_training_run()
    before = run.record(now=NOW)
    with pytest.raises(Denied, match=r"budget\.max_steps"):
        adjust(run, schedule__learning_rate=0.5, paused=True, budget__max_steps=-1)
    assert run.record(now=NOW) == before


def test_a_limit_that_the_run_has_passed_is_refused() -> None:
    run = a_training_run(global_steps=500)
    run.progress.count_minutes(True, now=NOW)
    for score in 100 * [3.0] + 100 * [1.0]:  # its best hundred games count
        run.progress.episode_finished(Episode(score, 10), run.spec.budget, now=NOW)
    passed = {"budget.max_steps": 500, "budget.max_minutes": 1.5, "budget.until_return": 3.0}
    for setting, value in passed.items():
        with pytest.raises(Denied, match=rf"{setting}: .* where the run is.*ps-ctl stop"):
            run.adjust({setting: value}, by="me", checkpoint_seconds=30.0, now=NOW + 120)
    assert run.end_reason(now=NOW + 120) == ""


# -- a custom algorithm -----------------------------------------------------------------------------------------------

OWN = {"name": "mine:Method", "unroll_length": 8, "target_interval": 100, "entropy_weight": -0.5, "dual": True,
       "mode": "fast", "limit": None}  # fmt: skip


def test_numbers_and_switches_of_a_custom_algorithm_are_adjusted() -> None:
    run = a_training_run(algorithm=OWN)
    made = adjust(run, algorithm__dual=False, algorithm__limit=3, schedule__learning_rate=0.5)
    assert sorted(made) == [
        ("algorithm.dual", True, False),
        ("algorithm.limit", None, 3),
        ("schedule.learning_rate", 1.0, 0.5),
    ]
    assert adjust(run, algorithm__entropy_weight=0.25) == [("algorithm.entropy_weight", -0.5, 0.25)]
    for one in (run, again(run)):
        settings = one.spec.to_dict()["algorithm"]
        assert settings == OWN | {"dual": False, "limit": 3, "entropy_weight": 0.25}


def test_other_settings_of_a_custom_algorithm_stay() -> None:
    for setting, value in (
        ("algorithm.unroll_length", 16),  # the server acts on it
        ("algorithm.target_interval", 16),
        ("algorithm.mode", 3),
        ("algorithm.dual", 3),
        ("algorithm.other", 3),
        ("algorithm.limit", float("nan")),
        ("algorithm.limit", "3"),
        ("algorithm.name", 3),
    ):
        with row(setting, value):
            run = a_training_run(algorithm=OWN)
            with pytest.raises(Denied, match=setting):
                run.adjust({setting: value}, by="me", checkpoint_seconds=30.0, now=NOW)
            assert run.spec.to_dict()["algorithm"] == OWN
    with pytest.raises(Denied, match=r"algorithm\.dual"):
        a_training_run().adjust({"algorithm.dual": False}, by="me", checkpoint_seconds=30.0, now=NOW)
