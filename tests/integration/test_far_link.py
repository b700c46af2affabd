"""Real programs with a far and slow link between them: what a worker sends there is small."""

from pathlib import Path

import torch

from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.paths import CHECKPOINTS
from ps_common.sockets.curve import write_pair
from tests.integration.processes import Programs
from tests.integration.slow_link import SlowLink

FLAGS = ("--preset", "cartpole-a3c", "--max-steps", "6400", "--until-return", "1000")
FLOAT32_BYTES = 8 * 9_155  # of an update of this network, both ways


def test_a_worker_on_a_slow_link_is_useful_with_few_bytes(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    for name in ("server", "worker"):
        write_pair(tmp_path / "keys", name)
    authorized = tmp_path / "authorized"
    authorized.mkdir()
    (authorized / "worker.key").write_bytes((tmp_path / "keys" / "worker.key").read_bytes())
    secret = str(tmp_path / "keys" / "server.key_secret")
    server, endpoint = programs.start_server(*FLAGS, "--curve-secret", secret, "--authorized-keys", str(authorized))
    link = SlowLink(endpoint, megabits=10, round_trip_seconds=0.1)
    try:
        keys = ["--curve-server-key", str(tmp_path / "keys" / "server.key")]
        keys += ["--curve-secret", str(tmp_path / "keys" / "worker.key_secret")]
        worker = programs.start("rl-worker", "--server", link.endpoint, "--link", "slow", *keys)
        assert server.wait() == 0
        assert worker.wait() == 0
    finally:
        link.close()
    assert link.up.bytes + link.down.bytes < 6400 // 128 * FLOAT32_BYTES / 6, "joining included"


def test_a_worker_that_takes_deltas_learns_the_same_weights_bit_for_bit(programs: Programs, tmp_path: Path) -> None:
    """The seed decides the run of a single worker. Its link counts what the server sends."""
    running, links = [], []
    for codec in ("bfloat16", "delta"):
        flags = ["--preset", "cartpole-a3c", "--max-steps", "3840", "--seed", "3", "--weight-codec", codec]
        server, endpoint = programs.start_server(*flags, run_dir=tmp_path / codec)
        links.append(SlowLink(endpoint, megabits=1000, round_trip_seconds=0.0))
        running += [server, programs.start("rl-worker", "--server", links[-1].endpoint)]
    assert [program.wait() for program in running] == [0] * 4
    for link in links:
        link.close()
    assert links[1].down.bytes < links[0].down.bytes / 2
    (exact, of_exact), (from_deltas, of_deltas) = (
        read_checkpoint(newest_first(tmp_path / codec / CHECKPOINTS)[0]) for codec in ("bfloat16", "delta")
    )
    assert of_exact.version == of_deltas.version == 1 + 3840 // 128
    assert all(torch.equal(exact[name], from_deltas[name]) for name in exact)
