"""A real ps-server with its checkpoints in S3 (moto's server): killed −9 with its disk, and resumed on another one."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.integration.integer_worker import SCHEMA, told
from tests.integration.processes import Program, Programs, status_of, wait_for, weights_of
from tests.integration.s3_server import BUCKET
from tests.integration.test_killed_servers import resumed_at

URL = f"s3://{BUCKET}/experiments/first"
WORKERS = 2
UPDATES = 1500  # of each worker


@pytest.fixture
def s3(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The store; programs that are started after it find it, as they find S3."""
    pytest.importorskip("s3fs")
    store = programs.start("tests.integration.s3_server")
    wait_for(lambda: store.output.startswith("http"), program=store)
    for name, value in {
        "AWS_ENDPOINT_URL": store.output.split()[0],
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return store


@pytest.mark.timeout(300)  # six programs that import torch, one after another
def test_a_server_and_its_disk_are_lost_and_nothing_that_was_durable(
    programs: Programs, s3: Program, tmp_path: Path
) -> None:
    flags = ("--checkpoint-seconds", "1")
    server, endpoint = programs.start_server("--checkpoint-dir", URL, *flags)
    port = int(endpoint.rpartition(":")[2])
    workers = [
        programs.start("tests.integration.integer_worker", endpoint, f"w{number}", str(UPDATES), str(number))
        for number in range(WORKERS)
    ]
    wait_for(lambda: status_of(endpoint).version >= UPDATES // 2, program=server)
    wait_for(lambda: status_of(endpoint).checkpoint_version > 1, program=server)
    before = status_of(endpoint)
    server.kill()
    shutil.rmtree(tmp_path / "run")

    elsewhere = tmp_path / "another machine"
    server, _ = programs.start_server(
        "--resume", URL, "--run-dir", str(elsewhere), *flags, port=port, run_dir=elsewhere
    )
    after = status_of(endpoint)
    assert after.run_id == before.run_id
    assert after.epoch > before.epoch
    assert resumed_at(server) > 0
    totals = [wait_for(lambda worker=worker: told(worker.output), program=worker) for worker in workers]  # type: ignore[misc]
    wait_for(lambda: status_of(endpoint).version >= 1 + WORKERS * UPDATES, program=server)
    wait_for(lambda: status_of(endpoint).global_steps == WORKERS * UPDATES)
    np.testing.assert_array_equal(weights_of(endpoint, SCHEMA.size).numpy(), -np.sum(totals, axis=0))
