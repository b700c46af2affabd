"""
A search for better settings with Optuna: two runs at a time, poor ones are stopped early, and a second call goes on.

    pip install optuna
    python -m examples.sweep --minutes 8
    ps-web runs/sweep            # meanwhile: all runs, and the settings in which they differ

Trial 0 has the settings that `rl-cluster --environment CartPole-v1` has. The score of a run is the mean return over its
whole training, so a setting that learns sooner has a higher one. A callback stops a run whose return is below the
median of the trials before it at the same step. The best of many trials was lucky, too: in the end it and the default
are trained again, with seeds that the search has not seen. All trials are in runs/sweep/study.log, which Optuna reads.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import tyro
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from ps_rl import PsRlError, Run, Update, train

AT_ONCE = 2  # runs, of one worker each
SEED, FRESH_SEEDS = 0, (1, 2, 3)  # of the search, and of the comparison at its end
PARTS = 20  # of a training, in each of which a run is compared with the others once
DEFAULT = {"learning_rate": 1e-3, "unroll_length": 64, "epochs": 5, "entropy_weight": 3e-3}


def suggested(trial: optuna.Trial) -> dict[str, Any]:
    """The settings of a trial, by their names in `train`."""
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-4, 1e-2, log=True),
        "unroll_length": trial.suggest_categorical("unroll_length", [16, 32, 64, 128]),
        "epochs": trial.suggest_int("epochs", 1, 10),
        "entropy_weight": trial.suggest_float("entropy_weight", 1e-4, 3e-2, log=True),
    }


class Judge:
    """A callback that reports a run to its trial, and stops the run when the pruner says so."""

    def __init__(self, trial: optuna.Trial, steps: int) -> None:
        self.trial, self.steps = trial, steps
        self.part = 0  # that was reported last
        self.has_stopped = False

    def __call__(self, run: Run, update: Update) -> None:
        part = PARTS * update.global_steps // self.steps
        if update.mean_return_100 is None or part <= self.part or self.has_stopped:
            return
        self.part = part
        self.trial.report(update.mean_return_100, part)
        if self.trial.should_prune():
            self.has_stopped = True
            run.stop(f"pruned at a mean return of {update.mean_return_100:.0f}")


def trained(folder: Path, settings: dict[str, Any], *, seed: int, steps: int, judge: Judge | None = None) -> Run:
    """The run in this folder, when it is over. Raises PsRlError where it has ended before its time."""
    settings = settings | {"experiment": "sweep", "max_steps": steps, "until_return": None, "seed": seed}
    callbacks = [judge] if judge else []
    with train(environment="CartPole-v1", workers=1, run_dir=folder, callbacks=callbacks, **settings) as run:
        end = run.wait()
    if end is None or (end.global_steps < steps and not (judge and judge.has_stopped)):
        raise PsRlError(f"{folder}: has ended before {steps} steps: {end.ending if end else 'before its first step'}")
    return run


def score(run: Run) -> float:
    """The mean return over the whole training."""
    curve = run.curve()
    return float(np.interp(np.linspace(0, curve.steps[-1], 1000), curve.steps, curve.returns).mean())


def objective(trial: optuna.Trial, *, folder: Path, steps: int) -> float:
    """The score of a trial's run. Raises TrialPruned."""
    judge = Judge(trial, steps)
    run = trained(folder / f"trial-{trial.number:03}", suggested(trial), seed=SEED, steps=steps, judge=judge)
    if judge.has_stopped:
        raise optuna.TrialPruned
    return score(run)


def search(
    folder: Path, *, steps: int, minutes: float = 8.0, trials: int | None = None, pruner: Any = None
) -> optuna.Study:
    """Go on with the study in this folder, or begin it: for so long, or so many further trials."""
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(folder / "study.log"))),
        study_name="sweep",
        load_if_exists=True,
        direction="maximize",
        pruner=pruner or optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=PARTS // 4),
    )
    study.sampler = optuna.samplers.TPESampler(seed=len(study.trials), n_startup_trials=8)  # not the same again
    study.enqueue_trial(DEFAULT, skip_if_exists=True)
    for trial in study.get_trials(states=[TrialState.RUNNING]):  # of a program that was killed
        study.tell(trial.number, state=TrialState.FAIL)
        study.enqueue_trial(trial.params)
    run = partial(objective, folder=folder, steps=steps)
    study.optimize(run, n_jobs=AT_ONCE, n_trials=trials, timeout=60 * minutes, catch=PsRlError)
    return study


def compare(study: optuna.Study, folder: Path, *, steps: int, seeds: Sequence[int] = FRESH_SEEDS) -> list[list[float]]:
    """Train the default and the best setting with fresh seeds; prints and returns the scores of both."""
    rivals = {"default": study.trials[0], "best": study.best_trial}
    jobs = list(product(rivals, seeds))
    place = folder / f"after-{len(study.trials)}-trials"

    def one(job: tuple[str, int]) -> Run:
        name, seed = job
        return trained(place / f"{name}-seed{seed}", rivals[name].params, seed=seed, steps=steps)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = dict(zip(jobs, pool.map(one, jobs), strict=True))
    scores = [[score(runs[name, seed]) for seed in seeds] for name in rivals]
    for (name, trial), found in zip(rivals.items(), scores, strict=True):
        last = [runs[name, seed].curve().returns[-1] for seed in seeds]
        print(f"{name}, trial {trial.number}: {trial.params}")
        print(f"  scores with seeds {', '.join(map(str, seeds))}: {', '.join(f'{one:.0f}' for one in found)}")
        print(f"  mean returns at the end: {', '.join(f'{one:.0f}' for one in last)}")
    return scores


def main(folder: Path = Path("runs/sweep"), minutes: float = 8.0, steps: int = 30_000) -> None:
    """Search for better settings for CartPole for so many minutes, by runs of so many steps."""
    study = search(folder, steps=steps, minutes=minutes)
    states = [trial.state.name.lower() for trial in study.trials]
    print(f"{len(states)} trials: {', '.join(f'{states.count(state)} {state}' for state in sorted(set(states)))}")
    compare(study, folder, steps=steps)


if __name__ == "__main__":
    tyro.cli(main)
