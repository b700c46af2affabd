"""Scores by separate games while a run trains: the curve, the best checkpoint, and what evaluation leaves as it is."""

import signal
from pathlib import Path

import msgspec

from ps_common.run_folder.paths import BEST, CHECKPOINTS, TENSORBOARD
from ps_common.run_folder.run_rows import EvaluationRow, read_evaluations
from ps_common.run_folder.trained import trained_in
from ps_rl import Run
from ps_track.feed import Feed
from rl_eval.games import Result
from tests.integration.processes import Program, Programs, children_with, wait_for

GAMES = 5
FLAGS = ("--preset", "cartpole", "--no-web", "--seed", "1", "--until-return", "None", "--evaluate-games", str(GAMES))


def begun(programs: Programs, folder: Path, *flags: str) -> Program:
    return programs.start("rl-cluster", *FLAGS, "--run-dir", str(folder), *flags)


def test_a_run_has_a_curve_of_evaluations_and_keeps_the_best_by_it(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cluster = begun(programs, folder, "--workers", "2", "--evaluate-every", "3000", "--max-minutes", "3")
    wait_for(lambda: len(read_evaluations(folder)) >= 2, program=cluster)
    (evaluator,) = children_with("rl_eval", cluster.process.pid)
    evaluator.kill()
    killed = len(read_evaluations(folder))
    wait_for(lambda: len(read_evaluations(folder)) >= killed + 2, program=cluster)
    assert "the evaluator died" in cluster.output
    cluster.signal(signal.SIGINT)
    assert cluster.wait() == 0
    rows = read_evaluations(folder)
    best = max(rows, key=lambda row: (row.mean_return, row.version))
    kept = trained_in(folder / CHECKPOINTS / BEST)
    assert (kept.version, kept.global_steps, best.best) == (best.version, best.global_steps, True)
    assert_shown(folder, rows)
    result = tmp_path / "result.json"
    flags = ("--checkpoint", str(folder), "--episodes", str(GAMES), "--json", str(result))
    assert programs.start("rl-eval", *flags).wait() == 0
    assert msgspec.json.decode(result.read_bytes(), type=Result).mean == best.mean_return, "the same games again"


def assert_shown(folder: Path, rows: list[EvaluationRow]) -> None:
    """Run, trackers and TensorBoard have the curve."""
    assert Run.open(folder).evaluations() == rows
    means = [row.mean_return for row in rows]
    points = Feed(folder, folder / "position").read().points
    assert [one.values["evaluation/mean_return"] for one in points if "evaluation/mean_return" in one.values] == means
    assert list((folder / TENSORBOARD / "evaluation").iterdir())


def test_anybody_may_follow_a_run_and_its_server_records_the_scores(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    cluster = begun(programs, folder, "--workers", "1", "--max-minutes", "3")
    endpoint = folder / "endpoint"
    wait_for(lambda: endpoint.exists() and list((folder / CHECKPOINTS).glob("checkpoint-*")), program=cluster)
    soon = {"rl_eval.trained.GONE_SECONDS": 3.0}
    place = endpoint.read_text().strip()
    follower = programs.start("rl-eval", "--follow", place, "--episodes", "3", constants=soon)
    wait_for(lambda: read_evaluations(folder), program=follower)
    cluster.signal(signal.SIGINT)
    assert cluster.wait() == 0
    assert follower.wait() == 0, "it ends with the run"
    assert "step " in follower.output
    (row, *_) = read_evaluations(folder)
    assert (row.games, row.best) == (3, False)
