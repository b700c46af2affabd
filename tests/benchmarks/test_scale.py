"""What a machine gives: which trials there are, which is the best, and a whole measurement in its smallest form."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.scale import __main__ as scale
from benchmarks.scale import measuring
from benchmarks.scale.measuring import NotMeasured, Workers
from benchmarks.scale.trials import CPU, GANG, GPU, Row, Trial, as_gangs, best_of, by_environments, by_workers, on_gpu
from rl_cluster.cores import usable_cores
from tests.integration.fork_server import Forked


def row(workers: int, envs: int, steps_per_second: float) -> Row:
    return Row(Trial(CPU, workers, envs), steps_per_second, 100.0, 1.0, 0.5, 9.0)


@pytest.mark.parametrize(
    ("cores", "counts"), [(1, [1]), (2, [2, 1]), (3, [3, 2, 1]), (12, [12, 11, 8, 4, 2, 1]), (16, [16, 15, 8, 4, 2, 1])]
)
def test_all_cores_are_tried_first_and_then_fewer(cores: int, counts: list[int]) -> None:
    assert [trial.workers for trial in by_workers(cores, 16)] == counts


def test_a_trial_of_fewer_workers_has_only_workers_of_the_one_before() -> None:
    trials = [trial.worker_flags for trial in by_workers(16, 8)]
    for more, fewer in pairwise(trials):
        assert fewer.items() < more.items()


def test_numbers_of_environments_are_tried_with_the_best_number_of_workers() -> None:
    assert list(by_environments(Trial(CPU, 15, 16))) == [Trial(CPU, 15, 8), Trial(CPU, 15, 32), Trial(CPU, 15, 64)]
    assert [trial.envs for trial in by_environments(Trial(CPU, 2, 1))] == [2, 4]


def test_a_gang_is_one_worker_of_all_cores_or_of_all_but_the_servers() -> None:
    assert [trial.workers for trial in as_gangs(16, 8)] == [16, 15]
    assert [trial.workers for trial in as_gangs(2, 8)] == [2]
    assert list(as_gangs(1, 8)) == []
    for trial in as_gangs(16, 8):
        assert trial.worker_flags == {f"gang-8-of-{trial.workers}": ["--envs", "8", "--gang", str(trial.workers)]}
        assert trial.cluster_flags == ["--workers", str(trial.workers), "--envs", "8", "--gang"]


def test_a_worker_of_a_gpu_has_the_flag_that_the_command_has() -> None:
    for trial in on_gpu():
        (flags,) = trial.worker_flags.values()
        assert flags == ["--envs", str(trial.envs), "--device", "cuda", "--threads", str(usable_cores())]
        assert trial.cluster_flags == ["--workers", "1", *flags]
        assert trial.way == GPU


def test_the_best_is_the_smallest_of_those_that_are_nearly_the_fastest() -> None:
    rows = [row(16, 16, 9800.0), row(15, 16, 9700.0), row(15, 32, 10_000.0), row(8, 16, 9000.0)]
    assert best_of(rows) is rows[1]


def test_a_trial_names_the_last_words_of_a_worker_that_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        def __init__(self, flags: Sequence[str], log: Path) -> None:
            log.write_text("first\nno such device\n")

        def poll(self) -> int:
            return 1

        def terminate(self) -> None:
            pass

        def wait(self, timeout: float | None = None) -> int:
            return 1

    monkeypatch.setattr(measuring, "start_worker", Dead)
    workers = Workers(("127.0.0.1:1", 1), tmp_path)
    with pytest.raises(NotMeasured, match=r"GPU-64-0 has ended: no such device"):
        workers.measure(Trial(GPU, 1, 64), seconds=1.0, until=float("inf"))
    with pytest.raises(NotMeasured, match="no time"):
        workers.measure(Trial(GPU, 1, 64), seconds=1.0, until=0.0)


@pytest.mark.nightly
def test_a_machine_is_measured_from_its_trials_to_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real programs."""
    monkeypatch.setattr("benchmarks.scale.trials.SHARES_OF_ENVIRONMENTS", (2,))
    folder = tmp_path / "scale"
    flags = scale.Flags(preset="cartpole", minutes=3.0, seconds=0.3, cores=2, gpu=False, folder=folder)
    monkeypatch.setattr(measuring, "start_worker", lambda flags, log: Forked(["rl_worker", *flags], log, tmp_path))
    assert scale.main(flags, ["--unroll-length", "5"]) == 0
    rows = json.loads((folder / "rows.json").read_text())
    assert [(row["trial"]["workers"], row["trial"]["envs"]) for row in rows[:2]] == [(2, 8), (1, 8)]
    assert rows[2]["trial"] == {"way": GANG, "workers": 2, "envs": 8}
    assert rows[3]["trial"]["envs"] == 16
    for found in rows:
        assert found["steps_per_second"] > found["updates_per_second"] > 0
        assert 0 < found["server_share"] < 2
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("on this machine: rl-cluster --preset cartpole --unroll-length 5 --workers ")
