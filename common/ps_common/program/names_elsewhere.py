"""
Names that other libraries give our flags: Stable-Baselines3, CleanRL, RLlib, Sample Factory, and the A3C programs.

None of them is a flag of ours, as a test checks. The error for one that is typed names ours. So does the error for a
command line that begins with the name of a preset or an environment.
"""

import difflib
import re
from collections.abc import Collection, Mapping, Sequence

from ps_common.errors import SettingsError
from ps_common.settings.run_files import presets

_OF_OURS = {
    "--algorithm": "--agent --algo",
    "--anneal-steps": "--anneal-lr",
    "--checkpoint": "--checkpoint-path --load --load-model --model-path",
    "--clip-range": "--clip-coef --clip-epsilon",
    "--entropy-weight": "--ent-coef --entropy-coef --entropy-coeff",
    "--environment": "--env --env-id --env-name --game --gym-id",
    "--epsilon": "--eps",
    "--experiment": "--exp-name",
    "--frame-skip": "--frameskip",
    "--frame-stack": "--framestack --n-stack",
    "--gae-lambda": "--gae",
    "--discount": "--gamma",
    "--device": "--gpu",
    "--hidden": "--hidden-size --hidden-sizes",
    "--run-dir": "--log-dir --logdir --output-dir --save-dir",
    "--learning-rate": "--lr",
    "--final-learning-rate": "--lr-final",
    "--gradient-clip": "--max-grad-norm",
    "--max-steps": "--max-timesteps --n-timesteps --num-timesteps --timesteps --timesteps-total --total-steps "
    "--total-timesteps --train-for-env-steps",
    "--envs": "--n-envs --num-envs --num-envs-per-worker",
    "--epochs": "--n-epochs --num-epochs --update-epochs",
    "--unroll-length": "--n-steps --nsteps --num-steps --rollout --rollout-length --t-max",
    "--workers": "--n-workers --num-processes --num-rollout-workers --num-workers",
    "--minibatches": "--num-minibatches",
    "--optimizer": "--optim",
    "--policy-every": "--policy-delay --policy-frequency",
    "--replay-ratio": "--gradient-steps --utd-ratio",
    "--replay-steps": "--buffer-size",
    "--target-interval": "--target-network-frequency --target-update-interval",
    "--target-rate": "--tau",
    "--value-weight": "--value-loss-coef --vf-coef --vf-loss-coeff",
    "--lstm": "--with-lstm",
}
NAMES_ELSEWHERE = {theirs: ours for ours, names in _OF_OURS.items() for theirs in names.split()}

# Methods of other libraries, by their names there.
METHODS_ELSEWHERE = {
    "a2c": "--algorithm a3c --consistency sync",
    "actor-critic": "--algorithm a3c",
    "ddpg": "--algorithm sac",
    "ddqn": "--algorithm dqn",
    "impala": "--algorithm a3c --off-policy vtrace",
    "appo": "--algorithm a3c --surrogate clip --epochs 2 --off-policy vtrace",
    "droq": "--algorithm sac --critic-dropout 0.01 --layer-norm --replay-ratio 20 --policy-every 20",
    "ppo": "--algorithm ppo",
    "ppo2": "--algorithm ppo",
    "q": "--algorithm one_step_q",
    "q-learning": "--algorithm one_step_q",
    "td3": "--algorithm sac",
    "redq": "--algorithm sac --critics 10 --critic-subset 2 --replay-ratio 20 --policy-every 20",
    "sarsa": "--algorithm one_step_sarsa",
    "vtrace": "--algorithm a3c --off-policy vtrace",
}

# Flags of other libraries that no flag of ours stands for, or values of flags, and what there is here.
NOT_HERE = {
    "--exploration-fraction": "here the share of random actions falls over a number of steps: --epsilon-anneal-steps",
    "--render": "the page of a run shows the game of a worker, and rl-eval --video FILE records one",
    "--workers": "several workers are started by rl-cluster: rl-cluster --server HOST:PORT --workers N",
    "--track tensorboard": "TensorBoard's files are written without it: tensorboard --logdir RUN_DIR (--summaries)",
}


def method_here(name: str) -> str:
    """Words on the flags that come nearest to a method of other libraries; "" for one that is not known."""
    here = METHODS_ELSEWHERE.get(name.lower().replace("_", "-"))
    return f"; nearest to it is {here}" if here else ""


def name_here(typed: Mapping[str, Sequence[str]], flags: Collection[str]) -> str:
    """A sentence on the first typed flag, with its values, that a program with these `flags` does not have; or ""."""
    for name, values in typed.items():
        if (ours := NAMES_ELSEWHERE.get(name)) in flags and name not in flags:
            return f"{name}: here it is called {ours}"
        if name not in flags and name in NOT_HERE:
            return f"{name}: {NOT_HERE[name]}"
        value = " ".join([name, *values[:1]]) if values else ""
        if value in NOT_HERE:
            return f"{value}: {NOT_HERE[value]}"
    return ""


def check_first_word(arguments: Sequence[str]) -> None:
    """Raises SettingsError where a command line begins with the name of a preset, or of an environment, and no flag."""
    word = next(iter(arguments), "-")
    if word.startswith("-"):
        return
    near = difflib.get_close_matches(word, presets(), n=1, cutoff=0.6)
    is_environment = "/" in word or ":" in word or re.search(r"-v\d+$", word)
    meant = f"--environment {word}" if is_environment else f"--preset {near[0]}" if near else ""
    hint = f"did you mean {meant}?" if meant else "every setting is a flag, which begins with --"
    raise SettingsError(f"{word}: is not a flag; {hint}")
