"""
Makes the kept samples of a release: what its programs leave on disk and say to each other, small enough to stay.

Run it once when a release is made, as a module: make_samples FOLDER. In the folder are then: `run`, of two shards, an
LSTM and a custom algorithm; `policy`, exported from it with its receipt; `session.msgpack`, the frames of a worker and
of a standby with their server, in order; `release`, the release that wrote them. Later releases read all of it
(test_samples.py).
"""

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from ps_common.protocol import messages
from ps_common.protocol.codecs import CODEC_NAMES
from ps_common.protocol.lineage import Lineage
from ps_common.protocol.messages import Message
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.protocol.wire import Buffer, read_to_server, to_frames
from ps_common.release import release
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.state.effects import Effect, Send
from tests.integration.processes import free_ports

ROOT = Path(__file__).parent.parent.parent
ALGORITHM = Path(__file__).parent / "samples" / "own_algorithm.py"
RUN_FLAGS = (
    "--preset", "cartpole-a3c-lstm", "--hidden", "8", "--lstm", "8", "--algorithm", "own_algorithm:ScaledA3C",
    "--envs", "2", "--max-steps", "600", "--seed", "1",
)  # fmt: skip
SERVER_FLAGS = ("--keep-checkpoints", "1", "--run-dir", "run")
EXPORT_FLAGS = (
    "--checkpoint",
    "run",
    "--import",
    "own_algorithm",
    "--episodes",
    "2",
    "--seed",
    "1",
    "--export",
    "policy",
)
LEFT_OUT = ("*.log", "*.lock", "*.png", "tensorboard", "command", "endpoint")
SCHEMA = Schema(
    [TensorSpec("policy.weight", (2, 4)), TensorSpec("policy.bias", (2,)), TensorSpec("seen", (1,), role="statistic")]
)
WORKER, STANDBY = b"a worker", b"a standby"
TO_SERVER, TO_PEER = "to the server", "to the peer"


def lineage() -> Lineage:
    """The lineage of the server in a session."""
    return Lineage.begun(16 * "1", secret="the secret of the sample", draw=0)


def server_of_the_session() -> ParameterServer:
    """The server that a session begins with."""
    limits = Limits(lease_seconds=5.0, checkpoint_seconds=30.0)
    return ParameterServer(None, lineage=lineage(), overrides={}, limits=limits, now=0.0)


def sent(effects: Sequence[Effect]) -> list[tuple[bytes, list[Buffer]]]:
    """The messages that these effects send: the peer, and the frames."""
    found = []
    for effect in effects:
        if isinstance(effect, Send):
            vector = effect.vector if effect.snapshot is None else [effect.snapshot.buffer]
            found.append((effect.to, [bytes(frame) for frame in to_frames(effect.message, vector)]))
    return found


def session() -> list[tuple[str, bytes, list[Buffer]]]:
    """The frames of a worker and of a standby with their server, in order, each with its direction and its peer."""
    server, request = server_of_the_session(), itertools.count(1)
    kept: list[tuple[str, bytes, list[Buffer]]] = []

    def say(peer: bytes, kind: type[Message], vector: np.ndarray | None = None, **fields: Any) -> None:
        message = kind(request=next(request), **fields)
        frames = [bytes(frame) for frame in to_frames(message, [] if vector is None else [vector.tobytes()])]
        kept.append((TO_SERVER, peer, frames))
        answered = server.receive(peer, *read_to_server(frames), now=float(len(kept)) / 100)
        kept.extend((TO_PEER, to, reply) for to, reply in sent(answered))

    run = {"optimizer": {"name": "sgd"}, "schedule": {"learning_rate": 0.5}, "wire": {"gradient_codec": "int8"}}
    code = {"my_games": messages.Code(hash="0f1e2d3c", place="here/my_games.py")}
    who = {"worker_id": "w", "secret": 16 * "s", "protocols": (1, 1), "codecs": CODEC_NAMES, "host": "here"}
    say(WORKER, messages.Hello, **who, environments=2, proposed_run=run, code=code, release=release())
    say(WORKER, messages.Seed, np.arange(11, dtype="<f4"), schema=SCHEMA.specs)
    server.checkpoint_saved("here")
    say(STANDBY, messages.Follow, address="there:5555", release=release())
    assert server.run is not None, "it has a worker and weights"
    say(STANDBY, messages.Followed, follow=3, number=server.run.log.position)
    say(WORKER, messages.Pull, codec="bfloat16")
    epoch = {"epoch": lineage().epoch, "schema_hash": SCHEMA.hash}
    for sequence, codec, gradient in (
        (1, "float32", np.ones(11, dtype="<f4")),
        (2, "float16", np.frombuffer(np.ones(10, dtype="<f2").tobytes() + bytes(4), dtype="u1")),
    ):
        pulls = {"weight_codec": "float32", "have_version": sequence, "have_epoch": epoch["epoch"]}
        say(
            WORKER,
            messages.Push,
            gradient,
            sequence=sequence,
            computed_on=sequence,
            steps=4,
            codec=codec,
            **epoch,
            **pulls,
        )
    say(WORKER, messages.Push, np.ones(3, dtype="<f4"), sequence=3, computed_on=3, **epoch)
    say(WORKER, messages.Report, sequence=1, episodes=(messages.Episode(3.0, 4, 4),), meters={"loss": 0.5})
    say(WORKER, messages.Heartbeat, save_soon=True)
    say(WORKER, messages.CreditRequest, bytes=44)
    say(WORKER, messages.RunRequest)
    say(b"an admin", messages.Adjust, settings={"schedule.learning_rate": 0.25}, by="an admin")
    say(b"an admin", messages.StatusRequest)
    say(b"an admin", messages.Subscribe)
    say(WORKER, messages.Goodbye, reason="enough")
    return kept


def run_together(commands: Sequence[Sequence[str]], place: str, variables: Mapping[str, str]) -> None:
    """Programs in this folder, until all have ended. Raises CalledProcessError for one that fails."""
    started = [subprocess.Popen([sys.executable, "-m", *words], cwd=place, env=variables) for words in commands]
    for process, words in zip(started, commands, strict=True):
        if status := process.wait():
            raise subprocess.CalledProcessError(status, words)


def main(folder: Path) -> None:
    """Make the samples in a new folder."""
    variables = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'common'}", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(ALGORITHM, place)
        ports = free_ports(2)
        shards = [f"127.0.0.1:{port}" for port in ports]
        servers = [
            ("ps_server", *SERVER_FLAGS, "--shard", f"{number}/2", "--shards", *shards, "--port", str(port))
            for number, port in enumerate(ports, start=1)
        ]
        run_together([*servers, ("rl_worker", "--server", shards[0], *RUN_FLAGS)], place, variables)
        run_together([("rl_eval", *EXPORT_FLAGS)], place, variables)
        shutil.copytree(Path(place, "run"), folder / "run", ignore=shutil.ignore_patterns(*LEFT_OUT))
        shutil.copytree(Path(place, "policy"), folder / "policy")
    (folder / "session.msgpack").write_bytes(msgpack.packb(session()))
    (folder / "release").write_text(release() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
