"""
`make games`: one recipe, the preset `atari`, on many games, one after another; a table and curves.

Every run gets the same settings and the same minutes. Its best checkpoint plays full games with sampled actions, beside
random play and constant actions in the same protocol, and beside what others published for as many frames. A game is
measured whole before the next one begins, and the table is written anew after each.
"""

import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec
import tyro

from benchmarks.learning.game_curves import draw
from benchmarks.learning.programs import Trained, evaluate, new_folder, train
from benchmarks.learning.published import AGENTS, SOURCE, published
from ps_common.errors import PsRlError
from ps_common.settings.run_files import load_preset
from rl_eval.games import Baseline
from rl_eval.scores import RANDOM_PLAY, measure_baselines

PRESET = "atari"
GAMES = ("Pong", "Breakout", "Boxing", "Freeway", "SpaceInvaders", "Seaquest", "Qbert", "BeamRider")
TABLE, ROWS, CURVES = "table.md", "rows.json", "curves.png"
NO_SCORE = "–"
MOST_STEPS = 4_500  # of a game of a baseline: 18,000 frames, as in Mnih et al. 2015
SEED_OF_GAMES = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Flags:
    """One recipe on many games."""

    games: tuple[str, ...] = GAMES
    """names as in ALE/NAME-v5"""
    minutes: float = 30.0
    """minutes of training for each game and seed"""
    seeds: int = 1
    """runs of each game: seeds 0, 1, …"""
    workers: int = 2
    """workers of a run"""
    episodes: int = 30
    """games of an evaluation"""
    folder: Path | None = None
    """new folder for runs, table, curves and rows; runs/games-DATE when not given"""


@dataclass(frozen=True)
class Score:
    """A mean with its 95 % interval, which is None where too few games were distinct."""

    mean: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Row:
    """The result of one game."""

    game: str
    frames: list[int]  # of each seed
    training: list[float | None]  # mean of the last 100 games
    scores: list[Score]  # of the best checkpoint, sampled
    random: float
    constant: tuple[str, float]  # the best action to hold, and its score


def main(flags: Flags) -> int:
    folder = new_folder(flags.folder, "games")
    rows: list[Row] = []
    for game in flags.games:
        runs = [folder / game / f"seed-{seed}" for seed in range(flags.seeds)]
        trained = [measured(game, run, seed, flags) for seed, run in enumerate(runs)]
        rows.append(row_of(game, trained, baselines_of(game)))
        (folder / ROWS).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        (folder / TABLE).write_text(table(rows, minutes=flags.minutes))
        draw(folder, rows, folder / CURVES)
        print((folder / TABLE).read_text(), flush=True)
    return 0


def measured(game: str, run: Path, seed: int, flags: Flags) -> tuple[Trained, dict[str, Any]]:
    """A run of a game, and the result of its best checkpoint."""
    given = ["--preset", PRESET, "--environment", f"ALE/{game}-v5", "--max-minutes", str(flags.minutes)]
    trained = train(run, [*given, "--workers", str(flags.workers), "--seed", str(seed)])
    playing = ["--episodes", str(flags.episodes)]
    return trained, evaluate(run, playing, result=run.with_name(f"{run.name}-score.json"))


def baselines_of(game: str) -> Sequence[Baseline]:
    """Random play and each constant action. Their games end after five minutes: in Breakout some would not end."""
    recipe = load_preset(PRESET).environment
    environment = msgspec.structs.replace(recipe, id=f"ALE/{game}-v5", max_episode_steps=MOST_STEPS)
    return measure_baselines(environment, epsilon=0.0, seed=SEED_OF_GAMES)


def row_of(game: str, runs: Sequence[tuple[Trained, dict[str, Any]]], baselines: Sequence[Baseline]) -> Row:
    """The runs of one game with their results, as rl-eval writes them."""
    frames = load_preset(PRESET).environment.frame_skip
    scores = {baseline.name: baseline.mean for baseline in baselines}
    random = scores.pop(RANDOM_PLAY)
    return Row(
        game=game,
        frames=[trained.steps * frames for trained, _ in runs],
        training=[trained.mean_return_100 for trained, _ in runs],
        scores=[Score(result["mean"], result["low"], result["high"]) for _, result in runs],
        random=random,
        constant=max(scores.items(), key=lambda held: held[1]),
    )


def table(rows: Sequence[Row], *, minutes: float) -> str:
    """Markdown: a row for each game; with several seeds their median, and all of them behind it."""
    head = ["game", "million frames", "last 100 training games", "best checkpoint, sampled (95 %)", "random play"]
    head += ["best constant action", *(f"{agent}, the same million (five seeds)" for agent in AGENTS)]
    lines = [f"`{PRESET}`, {minutes:g} minutes a game. Published scores: {SOURCE}, sticky actions 0.25.", ""]
    lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join(_cells(row))} |" for row in rows)]) + "\n"


def _cells(row: Row) -> list[str]:
    frames = statistics.median(row.frames)
    others = [published(row.game, agent, frames) for agent in AGENTS]
    return [
        row.game,
        f"{frames / 1e6:.1f}",
        _training(row.training),
        _scores(row.scores),
        f"{row.random:.1f}",
        f"{row.constant[1]:.1f} ({row.constant[0]})",
        *(NO_SCORE if one is None else f"{one.mean:,.1f} ({one.low:,.1f} to {one.high:,.1f})" for one in others),
    ]


def _training(means: Sequence[float | None]) -> str:
    known = [mean for mean in means if mean is not None]
    return f"{statistics.median(known):,.1f}" if known else "no 100 games"


def _scores(scores: Sequence[Score]) -> str:
    if len(scores) > 1:
        each = ", ".join(f"{score.mean:,.1f}" for score in scores)
        return f"{statistics.median(score.mean for score in scores):,.1f} ({each})"
    (score,) = scores
    interval = f" ({score.low:,.1f} to {score.high:,.1f})" if score.low is not None else ""
    return f"{score.mean:,.1f}{interval}"


if __name__ == "__main__":
    try:
        sys.exit(main(tyro.cli(Flags)))
    except PsRlError as error:
        sys.exit(f"games: {error}")
