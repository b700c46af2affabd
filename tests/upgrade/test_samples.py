"""What earlier releases have left on disk and said to each other is read by this one: the kept samples of each."""

import shutil
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.wire import read_to_server, read_to_worker
from ps_common.run_folder.places import joined, newest_set, read_newest
from ps_common.run_folder.policy_file import read_policy
from ps_common.run_folder.run_rows import EpisodeRow, EventRow, MetricsRow, rows_in
from ps_common.settings.run_settings import run_from_dict
from ps_ctl.cli import control
from ps_server.replication.standby_copy import Replay, run_of
from rl_eval.cli import evaluate
from tests.rows import row
from tests.upgrade.make_samples import SCHEMA, TO_SERVER, sent, server_of_the_session, session

SAMPLES = Path(__file__).parent / "samples"
RELEASES = sorted(path for path in SAMPLES.iterdir() if path.is_dir() and not path.name.startswith("_"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def sample(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the samples of one release, beside the custom algorithm of its run."""
    monkeypatch.syspath_prepend(SAMPLES)
    return Path(shutil.copytree(request.param, tmp_path / "sample"))


def test_a_run_folder_is_read_with_its_shards_its_lstm_and_its_custom_algorithm(sample: Path) -> None:
    folders = newest_set(sample / "run")
    checkpoints = read_newest(folders, warn=lambda error: pytest.fail(str(error)))
    schema, vectors = joined(checkpoints)
    run = run_from_dict(checkpoints[0][1].run, source="the sample")
    assert (len(folders), run.algorithm_name, run.network.lstm) == (2, "own_algorithm:ScaledA3C", 8)
    assert len(vectors["weights"]) == schema.size
    assert checkpoints[0][1].release == (sample / "release").read_text(encoding="utf-8").strip()
    for folder in folders:
        for name, kind in (("metrics", MetricsRow), ("episodes", EpisodeRow), ("events", EventRow)):
            with row(name):
                assert len(list(rows_in(folder / f"{name}.jsonl", kind))) > 1


def test_its_weights_play_and_its_curve_is_drawn(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(["--checkpoint", str(sample / "run"), "--import", "own_algorithm", "--episodes", "1"])
    assert "of 1 full games" in capsys.readouterr().out
    assert control(["plot", str(sample / "run"), "--out", str(sample / "curve.png")]) == 0
    assert (sample / "curve.png").stat().st_size > 1000


def test_a_policy_plays_and_its_receipt_verifies(sample: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record, run, schema, weights = read_policy(sample / "policy" / "model.safetensors")
    assert (record.global_steps, run.environment.id, len(weights)) == (608, "CartPole-v1", schema.size)
    evaluate(["--checkpoint", str(sample / "policy"), "--import", "own_algorithm", "--episodes", "1"])
    evaluate(["--verify", str(sample / "policy" / "receipt.json")])
    assert "2 games" in capsys.readouterr().out


def test_a_session_is_answered_as_it_was(sample: Path) -> None:
    """By the same messages, with the same weights; fields that a release has added are others' matter."""
    server = server_of_the_session()
    frames = msgpack.unpackb((sample / "session.msgpack").read_bytes())
    expected = [(peer, reply) for direction, peer, reply in frames if direction != TO_SERVER]
    answers = []
    for number, (direction, peer, request) in enumerate(frames, start=1):
        if direction == TO_SERVER:
            message, vector = read_to_server(request)
            answers += sent(server.receive(peer, message, vector, now=number / 100))
            if isinstance(message, messages.Seed):
                server.checkpoint_saved("here")
    assert len(answers) == len(expected)
    for (peer, was), (to, now) in zip(expected, answers, strict=True):
        before, after = read_to_worker(was), read_to_worker(now)
        with row(before[0]):
            assert (peer, type(before[0]), before[0].request) == (to, type(after[0]), after[0].request)
            assert not isinstance(after[0], messages.Refused)
            if not isinstance(before[0], messages.State):
                assert b"".join(map(bytes, before[1])) == b"".join(map(bytes, after[1]))


def test_a_standby_has_the_run_of_a_primary_of_that_release(sample: Path) -> None:
    to_standby, weights = [], np.zeros(0)
    for direction, peer, frames in msgpack.unpackb((sample / "session.msgpack").read_bytes()):
        if direction != TO_SERVER:
            message, vector = read_to_worker(frames)
            to_standby += [(message, vector)] if peer == b"a standby" else []
            if isinstance(message, messages.Weights) and message.codec == "float32":
                weights = CODECS["float32"].decode(list(vector), SCHEMA.size).numpy()
    (state, vectors), *updates = to_standby
    assert isinstance(state, messages.State)
    run = run_of(state, vectors, now=0.0)
    replay = Replay(run)
    for message, vector in updates:
        if isinstance(message, messages.Update) and run.weights.version < 3:
            replay.apply(message, vector, now=0.0)
    assert run.weights.vectors()["weights"].numpy().tolist() == weights.tolist()


def test_the_session_of_the_next_release_is_played_without_a_refusal() -> None:
    replies = [read_to_worker(frames)[0] for direction, _, frames in session() if direction != TO_SERVER]
    assert {messages.Welcome, messages.State, messages.Update, messages.Settled} <= {type(reply) for reply in replies}
    assert not [reply for reply in replies if isinstance(reply, messages.Refused)]
