"""Runs of many workers in one process: their staleness is that of as many parallel ones, and the seed decides them."""

from argparse import Namespace
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from matplotlib.figure import Figure
from msgspec import structs

from benchmarks.learning.results_file import ResultsFile
from benchmarks.learning.scaling import Job, curve, repetitions, searches
from benchmarks.learning.scaling_table import mean_in_words, measured, plot, ranked, speed_up_in_words, steps_to, table
from benchmarks.learning.simulated_run import SimulatedRun
from ps_common.settings import run_spec
from ps_common.settings.run_spec import RunSpec
from rl_agent.agent import build_agent
from rl_agent.environments.make import make_environments
from rl_agent.networks.flat_network import FlatNetwork
from rl_agent.networks.normalization import measure_normalization
from rl_agent.networks.running_statistics import RunningNormalization


def a_run(**settings: object) -> RunSpec:
    return RunSpec(
        seed=3,
        environment=run_spec.Environment(id="CartPole-v1", envs=2),
        algorithm=run_spec.A3CSettings(unroll_length=5),
        network=run_spec.NetworkSettings(name="mlp", hidden=(4,)),
        budget=run_spec.Budget(max_steps=600),
        **settings,  # type: ignore[arg-type]
    )


def ended(workers: int = 1, delays: tuple[int, ...] = (0,), **settings: object) -> SimulatedRun:
    simulated = SimulatedRun(a_run(**settings), workers=workers, delays=delays)
    simulated.to_the_end()
    return simulated


@pytest.mark.parametrize(("workers", "delays", "staleness"), [(1, (0,), 0), (4, (0,), 3), (1, (7,), 7), (3, (4,), 6)])
def test_a_gradient_is_as_late_as_the_workers_and_delays_make_it(
    workers: int, delays: tuple[int, ...], staleness: int
) -> None:
    progress = ended(workers, delays).run.progress
    assert progress.global_steps >= 600
    late = progress.take_staleness()
    assert set(late[2 * staleness :]) == {staleness}, "after the first pulls, when there are no older weights"


def test_delays_are_drawn() -> None:
    assert set(ended(delays=tuple(range(5))).run.progress.take_staleness()) == {0, 1, 2, 3, 4}


def test_the_seed_decides_a_run_bit_for_bit() -> None:
    first, again = ended(workers=3), ended(workers=3)
    assert torch.equal(first.run.weights.flat, again.run.weights.flat)


def test_the_first_weights_have_the_statistics_of_random_play_as_in_a_real_run() -> None:
    spec = structs.replace(a_run(), network=run_spec.NetworkSettings(name="mlp", hidden=(4,), normalization="running"))
    simulated = SimulatedRun(spec, workers=2)
    simulated.to_the_end()
    with closing(make_environments(spec.environment, count=2)) as environments:
        trained, expected = (
            build_agent(spec, environments, device=torch.device("cpu"), seed=3).network for _ in range(2)
        )
        FlatNetwork(trained).load(simulated.run.weights.flat)
        measure_normalization(expected, environments, seed=3000)
    [found], [played] = (
        [module for module in network.modules() if isinstance(module, RunningNormalization)]
        for network in (trained, expected)
    )
    assert torch.equal(found.center, played.center)
    assert found.count > played.count, "workers add their steps"


def test_an_error_in_a_worker_ends_the_run_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threading.excepthook", lambda _: None)
    simulated = SimulatedRun(a_run(), workers=2, on_unroll=lambda *_: 1 / 0)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        simulated.to_the_end()


def test_a_measurement_goes_on_where_it_stopped(tmp_path: Path) -> None:
    results = ResultsFile(tmp_path / "rows.jsonl", ("seed", "workers"))
    results.add({"seed": 1, "workers": 2, "score": 7.5})
    again = ResultsFile(tmp_path / "rows.jsonl", ("seed", "workers"))
    assert again.rows == [{"seed": 1, "workers": 2, "score": 7.5}]
    assert again.has((1, 2))
    assert not again.has((2, 2))
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"seed": 2, "wor')
    after_a_kill = ResultsFile(tmp_path / "rows.jsonl", ("seed", "workers"))
    assert after_a_kill.rows == again.rows
    after_a_kill.add({"seed": 2, "workers": 2})
    assert ResultsFile(tmp_path / "rows.jsonl", ("seed", "workers")).has((2, 2))


@pytest.mark.parametrize("method", ["one_step_q", "a3c"])
def test_a_curve_has_an_evaluation_every_tenth_of_the_steps(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.learning.scaling.GAMES", 2)
    row = curve(Job("CartPole-v1", method, workers=2, learning_rate=1e-3, seed=0, max_steps=300))
    assert len(row["steps"]) == len(row["scores"]) == 10
    assert all(0 <= steps - 30 * number < 10 for number, steps in enumerate(row["steps"], start=1))
    assert all(score >= 8 for score in row["scores"])


def row_of(workers: int, scores: list[float], *, rate: float = 1e-3, seed: int = 0) -> dict[str, object]:
    steps = [100 * (number + 1) for number in range(len(scores))]
    own = {"workers": workers, "learning_rate": rate, "seed": seed}
    return {"game": "G", "method": "m", "steps": steps, "scores": scores, **own}


def test_the_speed_up_by_hand() -> None:
    """
    A goal of 6 is reached after 300 steps by one worker, after 150 by two: each step of the two is worth two. The goal
    of the speed-up is 4.5, reached after 225 and 112.5 steps.
    """
    alone, together = [row_of(1, [2, 4, 6])], [row_of(2, [4, 8, 8])]
    assert steps_to(alone, 6) == 300
    assert steps_to(together, 6) == 150
    assert steps_to(alone, 6.1) is None
    assert speed_up_in_words(2, alone, together) == "4.0 (4.0 to 4.0)"


def test_the_mean_over_whole_runs_has_the_error_of_the_seeds() -> None:
    assert mean_in_words([row_of(1, [2, 4])]) == "3.00"
    assert mean_in_words([row_of(1, [2, 4]), row_of(1, [4, 6], seed=1)]) == "4.00 ± 1.00"


def test_an_interval_is_open_where_several_workers_miss_the_goal() -> None:
    """A draw of two bad seeds of two workers misses the goal."""
    alone = [row_of(1, [6, 8]), row_of(1, [6, 8], seed=1)]
    assert speed_up_in_words(2, alone, [row_of(2, [6, 9]), row_of(2, [0, 3], seed=1)]) == "1.0 (0.0 to 2.0)"


def test_seeds_that_chose_the_learning_rate_make_no_figures() -> None:
    chosen = [row_of(1, [1, 2], rate=1e-3, seed=seed) for seed in (4, 0, 3, 1, 2)]
    lost = [row_of(1, [9, 9], rate=3e-3, seed=seed) for seed in (0, 1)]
    assert [(run["seed"], run["learning_rate"]) for run in measured(lost + chosen)] == [(2, 1e-3), (3, 1e-3), (4, 1e-3)]


def test_an_interval_is_drawn_over_pairs_of_runs_with_one_seed() -> None:
    alone = [row_of(1, [0, 4, 4, 4], seed=2), row_of(1, [0, 0, 0, 4], seed=3)]
    assert speed_up_in_words(2, alone, alone) == "2.0 (2.0 to 2.0)"
    together = [row_of(2, [4, 4, 4, 4], seed=5), row_of(2, [0, 0, 0, 4], seed=3), row_of(2, [0, 4, 4, 4], seed=2)]
    assert speed_up_in_words(2, alone, together).endswith("(2.0 to 2.0)"), "seed 5 has no partner"


def test_each_draw_has_the_goal_of_its_own_seeds() -> None:
    """The goals are 6 and 3: one worker comes to its own after 150 steps, two workers after 100 and 50."""
    alone = [row_of(1, [4, 8]), row_of(1, [2, 4], seed=1)]
    assert speed_up_in_words(2, alone, [row_of(2, [6, 6]), row_of(2, [6, 6], seed=1)]) == "4.0 (3.0 to 6.0)"


def test_each_number_of_workers_has_its_best_learning_rate() -> None:
    slow, fast = row_of(1, [1, 2, 3], seed=2), row_of(1, [2, 4, 4], rate=3e-3, seed=2)
    shown = table([slow, fast, row_of(2, [4, 4, 4], seed=2)])
    assert list(shown.columns[3].cells) == ["0.003", "0.001"]
    assert list(shown.columns[6].cells) == ["3.0", "3.0"], "three quarters of 4"


def test_a_learning_rate_that_was_tried_with_more_seeds_is_better() -> None:
    good, bad = row_of(1, [2, 4], rate=1e-3), row_of(1, [1, 2], rate=3e-3)
    unlucky = row_of(1, [0, 0], rate=1e-3, seed=1)
    assert ranked([bad, good]) == [[good], [bad]]
    assert ranked([bad, good, unlucky]) == [[good, unlucky], [bad]], "the mean of the two is 1.5, as that of the other"


def test_fewer_learning_rates_are_tried_with_each_seed_until_one_is_left() -> None:
    flags = Namespace(
        seeds=[0, 1, 2, 3], games=["G"], methods=["m"], workers=[1, 2], learning_rates=[1e-3, 3e-3, 1e-2], steps=9
    )
    tried = {(job.workers, job.learning_rate, job.seed) for job in searches(flags)}
    assert tried == {(workers, rate, 0) for workers in (1, 2) for rate in (1e-3, 3e-3, 1e-2)}
    first = [
        row_of(workers, [score], rate=rate) | {"max_steps": 9}
        for workers, rate, score in [
            (1, 1e-3, 5.0), (1, 3e-3, 4.0), (1, 1e-2, 1.0), (2, 1e-3, 1.0), (2, 3e-3, 4.0), (2, 1e-2, 5.0)
        ]
    ]  # fmt: skip
    of_other_steps = [row_of(1, [9.0], rate=1e-2) | {"max_steps": 8}]
    later = [row_of(1, [9.0], rate=3e-3, seed=1) | {"max_steps": 9}]  # a measurement that was stopped in this stage
    two = {
        (job.workers, job.learning_rate, job.seed)
        for job in repetitions(flags, [1], [*first, *of_other_steps, *later], most=2)
    }
    assert two == {(1, 1e-3, 1), (1, 3e-3, 1), (2, 3e-3, 1), (2, 1e-2, 1)}
    second = [row_of(workers, [9.0 if rate == 3e-3 else 0.0], rate=rate, seed=1) for workers, rate, _ in two]
    rows = first + [row | {"max_steps": 9} for row in second]
    assert {(job.workers, job.learning_rate, job.seed) for job in repetitions(flags, [2, 3], rows, most=1)} == {
        (workers, 3e-3, seed) for workers in (1, 2) for seed in (2, 3)
    }
    assert list(repetitions(flags, [], rows, most=1)) == []


def test_the_picture_has_a_panel_for_each_game_and_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, dict[str, Any]] = {}
    heights = []
    save = Figure.savefig

    def seen(figure: Figure, path: Path, **settings: Any) -> None:
        for axis in figure.axes:
            drawn[axis.get_title()] = {str(line.get_label()): line.get_color() for line in axis.lines}
            heights.append(axis.get_ylim())
        save(figure, path, **settings)

    monkeypatch.setattr(Figure, "savefig", seen)
    other = row_of(16, [7, 8], seed=2) | {"method": "n"}
    rows = [
        row_of(1, [1, 2], seed=2),
        row_of(16, [2, 3], seed=2),
        other,
        row_of(1, [5, 6], seed=2) | {"game": "MinAtar/H-v1"},
    ]
    plot(rows, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert {panel: list(lines) for panel, lines in drawn.items() if panel} == {
        "m, G": ["1", "16"], "n, G": ["16"], "m, H-v1": ["1"]
    }  # fmt: skip
    assert (drawn["m, G"]["16"] == drawn["n, G"]["16"]).all(), "16 workers have the same colour in each panel"
    assert (drawn["m, G"]["16"] != drawn["m, G"]["1"]).any()
    assert heights[0] == heights[1], "methods are compared on one axis"
