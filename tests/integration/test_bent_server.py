"""With --check, a server that finds its own state impossible stops, with what to do; its run can be resumed."""

from pathlib import Path

import numpy as np

from tests.integration.independent_client import Client
from tests.integration.processes import Programs, status_of, wait_for, weights_of


def test_a_server_whose_ledger_is_bent_ends_and_saves_nothing_more(programs: Programs, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    flags = ["--host", "127.0.0.1", "--port", "0", "--run-dir", str(folder), "--checkpoint-seconds", "60", "--check"]
    server = programs.start("tests.integration.bent_server", *flags)
    endpoint = wait_for(lambda: (folder / "endpoint").exists() and (folder / "endpoint").read_text(), program=server)
    client = Client(endpoint.strip(), "a")
    client.join([{"name": "w", "shape": [3], "dtype": "float32"}], np.zeros(3))
    wait_for(lambda: status_of(endpoint.strip()).checkpoint_version == 1, program=server)
    client.pull()
    for _ in range(5):
        client.push_pull(np.ones(3), steps=1)
    assert server.wait() == 1
    assert "a: 100 of its pushes are durable, and 5 are settled: that cannot be" in server.output
    assert f"ps-server --resume {folder}" in server.output
    client.socket.close()
    _, resumed = programs.start_server("--resume", str(folder))
    assert weights_of(resumed, 3).tolist() == [0, 0, 0], "of the first checkpoint: nothing was saved since"
