"""Real programs with a far and slow link between them: the worker measures it, and what it then sends is small."""

from pathlib import Path

from common.sockets.curve import write_pair
from tests.integration.processes import Programs, wait_for
from tests.trials.far_link import FarLink

FLAGS = ("--preset", "cartpole-a3c", "--max-steps", "6400", "--until-return", "1000")
FLOAT32_BYTES = 8 * 9_155  # of an update of this network, both ways


def test_a_worker_on_a_far_link_chooses_small_codecs_and_is_useful(programs: Programs, tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    for name in ("server", "worker"):
        write_pair(tmp_path / "keys", name)
    authorized = tmp_path / "authorized"
    authorized.mkdir()
    (authorized / "worker.key").write_bytes((tmp_path / "keys" / "worker.key").read_bytes())
    secret = str(tmp_path / "keys" / "server.key_secret")
    server, endpoint = programs.start_server(*FLAGS, "--curve-secret", secret, "--authorized-keys", str(authorized))
    link = FarLink(endpoint, megabits=10, round_trip_seconds=0.1)
    try:
        keys = ["--curve-server-key", str(tmp_path / "keys" / "server.key")]
        keys += ["--curve-secret", str(tmp_path / "keys" / "worker.key_secret")]
        worker = programs.start("rl-worker", "--server", link.endpoint, "--link", "auto", *keys)
        wait_for(lambda: "--link auto:" in worker.output, program=worker)
        before = sum(link.bytes)
        (choice,) = [line for line in worker.output.splitlines() if "--link auto:" in line]
        assert "--gradient-codec topk --weight-codec bfloat16" in choice
        assert "round trip 1" in choice, "100 ms and a bit"
        assert server.wait() == 0
        assert worker.wait() == 0
    finally:
        link.close()
    updates = 6400 // 128 - 3  # those before the choice were exact
    assert sum(link.bytes) - before < updates * FLOAT32_BYTES / 4
