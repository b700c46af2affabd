"""The search for settings: runs carry what a trial suggests, poor ones are stopped, and a second call goes on."""

from pathlib import Path

import pytest

pytest.importorskip("optuna", reason="the search needs: pip install optuna")

from optuna.pruners import ThresholdPruner
from optuna.trial import FrozenTrial, TrialState

from examples import sweep
from ps_common.settings.run_files import recipe_for
from ps_common.settings.run_settings import keywords_of
from ps_rl import Run

FILE = Path(sweep.__file__)
STEPS = 4000


def run_of(trial: FrozenTrial, folder: Path) -> Run:
    return Run.open(folder / f"trial-{trial.number:03}")


def settings_of(run: Run) -> dict[str, object]:
    return {name: run.settings[name] for name in sweep.DEFAULT}


@pytest.mark.nightly
@pytest.mark.timeout(240)
def test_a_search_is_resumed_and_prunes_by_its_callback(tmp_path: Path) -> None:
    study = sweep.search(tmp_path, steps=STEPS, trials=2)
    default, other = study.trials
    assert default.params == sweep.DEFAULT
    assert default.params != other.params
    for trial in (default, other):
        run = run_of(trial, tmp_path)
        assert settings_of(run) == trial.params
        assert trial.state == TrialState.COMPLETE
        assert trial.value == pytest.approx(sweep.score(run))
        assert trial.intermediate_values

    killed = study.ask()
    wanted = sweep.suggested(killed)
    study = sweep.search(tmp_path, steps=10 * STEPS, trials=1, pruner=ThresholdPruner(upper=0.0))
    assert [trial.params for trial in study.trials[:2]] == [default.params, other.params], "the study goes on"
    assert [trial.state for trial in study.trials[2:]] == [TrialState.FAIL, TrialState.PRUNED]
    assert study.trials[3].params == wanted, "what a killed program has left is tried again"
    run = run_of(study.trials[3], tmp_path)
    assert settings_of(run) == wanted
    assert run.status is not None
    assert run.status.ending.startswith("pruned at a mean return of ")
    assert run.status.global_steps < 10 * STEPS


def test_the_default_of_the_search_is_that_of_every_environment_and_the_file_is_short() -> None:
    recipe = keywords_of(recipe_for("CartPole-v1"))
    assert {name: recipe[name] for name in sweep.DEFAULT} == sweep.DEFAULT
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 150
