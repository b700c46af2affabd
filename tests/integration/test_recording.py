"""A real server is recorded, and its machine decides the same again."""

import re
from pathlib import Path

from tests.integration.processes import Programs, wait_for, weights_of
from tests.simulation.replay import replay

UPDATES = 200


def test_a_real_server_of_two_workers_is_recorded_and_replayed(programs: Programs, tmp_path: Path) -> None:
    file = tmp_path / "recording"
    flags = ("--optimizer", "sgd", "--learning-rate", "1", "--record", str(file), "--record-vectors")
    server, endpoint = programs.start_server(*flags)
    workers = [
        programs.start("tests.integration.integer_worker", endpoint, f"w{seed}", str(UPDATES), str(seed))
        for seed in (1, 2)
    ]
    for worker in workers:
        wait_for(lambda worker=worker: re.search(r"\d", worker.output), program=worker)
    weights = weights_of(endpoint, 100)
    for worker in workers:
        worker.kill()
    server.process.terminate()
    assert server.wait() == 0
    lines: list[str] = []
    again = replay(file, show=lines.append)
    assert again.version == 1 + 2 * UPDATES
    assert again.run is not None
    assert again.run.weights.flat.equal(weights)
    assert any("receive Push" in line and "w1:" in line and "w2:" in line for line in lines)
