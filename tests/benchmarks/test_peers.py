"""
ps-rl beside its peers: every command line is one that its program takes, the figures are what the rows say, and the
page keeps what was not measured anew. The peers themselves are not installed here.
"""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.peers.__main__ import Flags, compare_speeds
from benchmarks.peers.measuring import Figures, NotMeasured, Row, figures_of, run
from benchmarks.peers.peer_program import parse
from benchmarks.peers.runners import (
    CORES,
    PROGRAMS,
    Runner,
    hopper_as_recommended,
    pong_as_recommended,
    same_network,
)
from ps_common.program.flags import parse_with_run
from ps_common.settings.run_spec import A3CSettings, RunSpec
from rl_cluster.settings import ClusterSettings
from tests.rows import row

VENVS = Path("/venvs")
# A peer's program without a peer: three updates and two games, then it waits to be ended.
TRAINS = f"""
import signal, sys
sys.path.insert(0, {str(PROGRAMS)!r})
from peer_program import Rows, parse
rows = Rows(parse(sys.argv[1:], algorithms=["ppo"]).rows)
rows.add_update(1000)
rows.add_game(-21.0)
rows.add_game(-19.0)
rows.add_update(2000)
rows.add_update(3000)
signal.pause()
"""


def run_of(runner: Runner, *, sticky: float | None = 0.25) -> RunSpec:
    command = runner.command(Path("/run"), sticky=sticky, seed=7)
    flags = command[command.index("rl_cluster") + 1 :]
    run = parse_with_run(ClusterSettings, flags, prog="rl-cluster").run
    assert sticky is None or run.environment.sticky_actions == sticky
    return run


def fake(folder: Path, source: str) -> Runner:
    program = folder / "fake.py"
    program.write_text(source)
    return Runner("fake", "fake", (sys.executable, str(program), "ppo"))


def measured(runner: Runner) -> Figures:
    """The figures of as many seconds as this machine needs now."""
    for seconds in (0.5, 2.0, 8.0):
        with suppress(NotMeasured):
            return run(runner, seconds=seconds, warm_seconds=0.0, sticky=0.0, seed=1)
    return run(runner, seconds=32.0, warm_seconds=0.0, sticky=0.0, seed=1)


def test_every_command_line_is_one_that_its_program_takes() -> None:
    of_pong = {(runner, 0.25) for runner in (*same_network(VENVS), *pong_as_recommended(VENVS))}
    for runner, sticky in (*of_pong, *((runner, None) for runner in hopper_as_recommended(VENVS))):
        with row(runner.name):
            if runner.is_ours:
                assert run_of(runner, sticky=sticky).budget.until_return is None
                continue
            python, program, *flags = runner.command(Path("/run"), sticky=sticky, seed=7)
            assert ("--sticky" in flags) is (sticky is not None), "Hopper has no frames to repeat"
            venv = Path(python).relative_to(VENVS).parts[0]
            assert (PROGRAMS / f"{venv}.txt").is_file(), "make installs a venv for each of these files"
            assert Path(program).is_file()
            given = parse(flags, algorithms=["ppo", "a2c", "sac"])
            assert (given.sticky, given.seed, given.threads, given.rows.parent) == (
                sticky or 0.0,
                7,
                CORES,
                Path("/run"),
            )


def test_the_same_network_and_settings_are_those_of_the_peers() -> None:
    ours, *_ = same_network(VENVS)
    run = run_of(ours)
    algorithm = run.algorithm
    assert isinstance(algorithm, A3CSettings)
    assert CORES * run.environment.envs == 8
    assert (algorithm.unroll_length, algorithm.epochs) == (128, 4)
    assert run.environment.envs * algorithm.unroll_length / algorithm.minibatches == 256
    assert (run.environment.preprocessing, run.network.name) == ("atari84", "nature84")
    assert run.network.normalization == "none"


def test_figures_are_of_the_time_after_the_warm_up_and_count_from_the_command() -> None:
    rows = [
        Row(103.0, 0, 0, 0, None),
        Row(105.0, 1000, 1, 0, None),
        Row(120.0, 10_000, 9, 99, 18.5),
        Row(130.0, 16_000, 15, 100, 17.9),
        Row(160.0, 25_000, 24, 130, 18.0),
    ]
    found = figures_of(rows, 512.0, began=100.0, warm_seconds=20.0)
    assert found == Figures(15_000 / 40, 5.0, 512.0, 18.0, 100, 1.0)
    with pytest.raises(NotMeasured):
        figures_of(rows, 512.0, began=100.0, warm_seconds=31.0)


def test_a_program_is_started_measured_and_ended(tmp_path: Path) -> None:
    found = measured(fake(tmp_path, TRAINS))
    assert found.steps_per_second > 0
    assert found.memory_mib > 1
    assert (found.mean_return, found.games) == (-20.0, 2)


def test_runs_are_in_turn_and_a_ratio_is_of_two_in_the_same_turn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runners = [Runner(name, f"type {name}", (name,)) for name in ("ours", "slow", "quick")]
    speeds = iter([600.0, 200.0, 300.0, 900.0, 300.0, 500.0, 660.0, None, 330.0])

    def run(runner: Runner, **_: object) -> Figures:
        speed = next(speeds)
        if speed is None:
            raise NotMeasured("it has ended")
        return Figures(speed, 4.0, 500.0, -20.5, 40, None)

    monkeypatch.setattr("benchmarks.peers.__main__.run", run)
    monkeypatch.setattr("benchmarks.peers.__main__.BUSY_SECONDS", 0.0)
    table = compare_speeds(Flags(), runners)
    assert table.startswith("**ps-rl makes 2.00 times the steps/s of the quickest, quick.**")
    assert "% of the cores right before a run · `make peers`*" in table
    assert "| ours | 660 | 600, 900, 660 |  | 500 | 4.0 |" in table
    assert "| slow | 250 | 200, 300, – | 3.00 (3.00–3.00) | 500 | 4.0 |" in table
    assert "| quick | 330 | 300, 500, 330 | 2.00 (1.80–2.00) | 500 | 4.0 |" in table
    said = [line.partition("minutes  ")[2] for line in capsys.readouterr().out.splitlines()]
    assert said[0] == "9 runs of 60 s each"
    assert said[1].startswith("turn 1, ours: 600 steps/s, first update after 4.0 s, 500 MiB, -20.5 points in 40 games")
    assert said[8] == "turn 3, slow: not measured: it has ended"
