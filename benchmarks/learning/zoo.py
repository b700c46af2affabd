"""
`make zoo`: the trained policies in zoo/, each as `rl-eval --export` writes it, from a run of its preset to its end.

A policy has the weights of the run's best checkpoint, a card with the score of its games, and their receipt. A policy
of that name is replaced. Policies larger than two mebibytes are refused: a clone of the repository has them all.
"""

import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.learning.programs import evaluate, train
from ps_common.errors import PsRlError
from ps_common.run_folder.paths import records_folder
from ps_common.settings.run_files import SETTINGS, load_config
from rl_eval.policy_folder import RECEIPT
from rl_eval.receipt import read_receipt

ZOO = Path(__file__).parents[2] / "zoo"
PRESETS = ("cartpole-a3c", "cartpole", "inverted-pendulum", "doom-basic-fast", "pong")
MOST_BYTES = 2 * 2**20  # of a policy: all its files
GAMES = 30  # on its card

PAGE = """\
# Trained policies

Each folder is what `rl-eval --export` writes after a run of the preset of its name: weights, settings, a card with the
score and how it was measured, and the receipt of its games. `make zoo PRESETS="pong"` trains and replaces them;
`make zoo-test` plays a hundred games with a fresh copy of each. From a checkout:

```sh
rl-eval --checkpoint zoo/cartpole-a3c --episodes 10
```

| policy | mean | environment | games | size |
|---|---|---|---|---|
{rows}
"""


@dataclass(frozen=True, kw_only=True)
class Flags:
    """Train presets and keep their policies in zoo/."""

    presets: tuple[str, ...] = PRESETS
    """the presets, one after another"""
    seed: int = 0
    """of the runs"""
    workers: int = 2
    """of a run"""
    run_dir: Path | None = None
    """a run that has ended: its policy is taken, and nothing is trained; with its preset in --presets"""


def main(flags: Flags) -> None:
    if flags.run_dir is not None:
        preset = load_config(records_folder(flags.run_dir) / SETTINGS).preset
        if flags.presets != (preset,):
            raise PsRlError(f"--run-dir {flags.run_dir}: has a policy of {preset} alone; add --presets {preset}")
    for preset in flags.presets:
        with tempfile.TemporaryDirectory() as folder:
            run = flags.run_dir or train(Path(folder) / preset, _settings(preset, flags)).folder
            add(preset, run, Path(folder), ZOO)
        (ZOO / "README.md").write_text(page(ZOO))


def add(preset: str, run: Path, folder: Path, zoo: Path) -> None:
    """Put the policy of a run into the zoo. Raises PsRlError. `folder` is for what lies there meanwhile."""
    policy = folder / "policy"
    playing = ["--episodes", str(GAMES), "--export", str(policy)]
    score = evaluate(run, playing, result=folder / "score.json")
    if (size := sum(path.stat().st_size for path in policy.iterdir())) > MOST_BYTES:
        raise PsRlError(f"zoo: the policy of {preset} has {size:,} bytes, and at most {MOST_BYTES:,} are allowed")
    shutil.rmtree(zoo / preset, ignore_errors=True)
    shutil.copytree(policy, zoo / preset)
    print(f"{zoo / preset}: {size:,} bytes, mean {score['mean']:.2f} of {GAMES} games", flush=True)


def page(zoo: Path) -> str:
    """The zoo's README: each policy with its score and its protocol."""
    rows = []
    for path in sorted(zoo.glob(f"*/{RECEIPT}")):
        receipt = read_receipt(path)
        mean = statistics.mean(game.score for game in receipt.games)
        size = sum(file.stat().st_size for file in path.parent.iterdir())
        name = path.parent.name
        rows.append(
            f"| [`{name}`]({name}) | {mean:.2f} | {receipt.environment.id} | {receipt.episodes} | {size // 1024} KiB |"
        )
    return PAGE.format(rows="\n".join(rows))


def _settings(preset: str, flags: Flags) -> list[str]:
    return ["--preset", preset, "--workers", str(flags.workers), "--seed", str(flags.seed)]


if __name__ == "__main__":
    try:
        main(tyro.cli(Flags))
    except PsRlError as error:
        sys.exit(f"zoo: {error}")
