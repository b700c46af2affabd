"""`ps-server --resume` with flags: the run that it serves and records, and the flags that it refuses."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from torch import Tensor

from ps_common.errors import SettingsError
from ps_common.protocol.record import Record
from ps_common.run_folder.checkpoint_file import write_checkpoint
from ps_common.run_folder.paths import CHECKPOINTS, METRICS, checkpoint_name
from ps_common.settings.overrides import resumed_run
from ps_common.settings.run_files import SETTINGS
from ps_common.settings.run_settings import flat_settings
from ps_server import cli, serving
from ps_server.state.training_run import TrainingRun
from tests.ps_common.settings.test_overrides import BEGUN_WITH, another
from tests.ps_server.stops import StopAtOnce
from tests.ps_server.transcripts import EPOCH, Transcript, restored_run

Resume = Callable[..., dict[str, Any]]
EACH_ALGORITHM = ["a3c", "one_step_q", "one_step_sarsa", "n_step_q"]


@pytest.fixture
def resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resume:
    """Serve a run of Q-learning from its checkpoint, with these flags, for a moment. Returns the recorded settings."""
    monkeypatch.setattr(serving, "StopSignal", StopAtOnce)
    server = Transcript.seeded(algorithm={"name": "n_step_q"}, optimizer={"name": "adam"})
    server.push("a", 1)
    saved = server.save()
    (tmp_path / CHECKPOINTS).mkdir()
    write_checkpoint(tmp_path / CHECKPOINTS / checkpoint_name(1, 1), saved.vectors, saved.record)
    (tmp_path / SETTINGS).write_text(server.run.spec.to_toml())

    def start(*flags: str) -> dict[str, Any]:
        cli.serve(["--resume", str(tmp_path), "--host", "127.0.0.1", "--port", "0", *flags])
        assert (tmp_path / METRICS).exists()
        return flat_settings(tomllib.loads((tmp_path / SETTINGS).read_text()))

    return start


@pytest.mark.parametrize(
    ("flags", "key", "value"),
    [
        ("--learning-rate 0.5", "schedule.learning_rate", 0.5),
        ("--max-steps 77", "budget.max_steps", 77),
        ("--unroll-length 3", "algorithm.unroll_length", 3),
        ("--target-interval 0", "algorithm.target_interval", 0),
        ("--beta1 0.5", "optimizer.beta1", 0.5),
        ("--consistency ssp", "consistency.rule", "ssp"),
        ("--gradient-codec int8", "wire.gradient_codec", "int8"),
        ("--envs 2", "environment.envs", 2),
        ("--experiment again", "experiment", "again"),
        ("--optimizer adam --algorithm n_step_q", "optimizer.name", "adam"),
    ],
)
def test_what_may_change_is_applied_and_recorded(resume: Resume, flags: str, key: str, value: Any) -> None:
    assert resume(*flags.split())[key] == value


@pytest.mark.parametrize(("flags", "minutes"), [("", 1.0), ("--until-return 19", None), ("--until-return 17", 3.0)])
def test_a_solved_run_keeps_the_minute_of_its_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: Resume, flags: str, minutes: float | None
) -> None:
    """Another target was not reached before, or nobody noted when."""
    server = Transcript.seeded(algorithm={"name": "n_step_q"}, optimizer={"name": "adam"}, budget={"until_return": 18})
    server.push("a", 1)
    progress = {"episodes": 100, "returns": (18.0,) * 100, "best_mean": 18.0, "minutes": 3.0, "minutes_to_target": 1.0}
    saved = server.save()
    record = msgspec.structs.replace(saved.record, progress=msgspec.structs.replace(saved.record.progress, **progress))
    path = tmp_path / CHECKPOINTS / checkpoint_name(1, 1)
    write_checkpoint(path, saved.vectors, record)
    (tmp_path / SETTINGS).write_text(server.run.spec.to_toml())
    runs: list[TrainingRun] = []
    restore = TrainingRun.restored

    def restored(vectors: dict[str, Tensor], record: Record, *, now: float) -> TrainingRun:
        runs.append(restore(vectors, record, now=now))
        return runs[0]

    monkeypatch.setattr(TrainingRun, "restored", restored)
    resume(*flags.split())
    assert runs[0].progress.minutes_to_target == minutes


@pytest.mark.parametrize(
    "flags",
    [
        "--preset pong",
        "--hidden 16",
        "--lstm 8",
        "--normalization running",
        "--reward-normalization returns",
        "--algorithm a3c",
        "--algorithm one_step_q",
        "--optimizer sgd",
        "--environment Acrobot-v1",
        "--frame-skip 2",
        "--seed 5",
    ],
)
def test_what_a_run_was_begun_with_is_refused_with_the_flag(resume: Resume, tmp_path: Path, flags: str) -> None:
    with pytest.raises(SettingsError, match=f"^{flags}: a resumed run keeps "):
        resume(*flags.split())
    assert not (tmp_path / METRICS).exists(), "nothing was served"


@pytest.mark.parametrize("algorithm", EACH_ALGORITHM)
def test_a_run_is_restored_with_every_setting_that_may_change(algorithm: str) -> None:
    server = Transcript.seeded(algorithm={"name": algorithm}, optimizer={"name": "rmsprop"})
    server.push("a", 1)
    saved, spec = server.save(), server.run.spec
    for key in flat_settings(spec.to_dict()):
        if not BEGUN_WITH.fullmatch(key):
            changed = resumed_run(spec, {key: another(spec, key)})
            again = Transcript(
                restored_run(
                    saved.vectors, msgspec.structs.replace(saved.record, run=changed.to_dict()), epoch=EPOCH + 1
                ),
                epoch=EPOCH + 1,
            )
            assert again.run.spec == changed, key
            again.hello("a")


def test_a_run_that_gets_a_target_of_its_own_begins_with_the_weights() -> None:
    server = Transcript.seeded(algorithm={"name": "n_step_q", "target_interval": 0})
    server.push("a", 1, [1.0, 2.0, 3.0])
    saved = server.save()
    changed = resumed_run(server.run.spec, {"algorithm.target_interval": 10_000})
    weights = restored_run(
        saved.vectors, msgspec.structs.replace(saved.record, run=changed.to_dict()), epoch=EPOCH + 1
    ).weights
    assert weights.target.tolist() == weights.flat.tolist() == server.run.weights.flat.tolist()
    assert weights.target_version == weights.version
