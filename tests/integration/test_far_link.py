"""Real programs with a far and slow link between them: what a worker sends there is small."""

from pathlib import Path

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
