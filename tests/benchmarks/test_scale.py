"""What a machine gives: which trials there are, which is the best, and a whole measurement in its smallest form."""

import json
from pathlib import Path

import pytest

from benchmarks.scale import __main__ as scale
from benchmarks.scale import measuring
from benchmarks.scale.trials import CPU, GANG, Row, Trial
from tests.integration.fork_server import Forked


def row(workers: int, envs: int, steps_per_second: float) -> Row:
    return Row(Trial(CPU, workers, envs), steps_per_second, 100.0, 1.0, 0.5, 9.0)


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
