"""PROTOCOL.md is enough: a client that shares no code with the server trains against it."""

import ast
from pathlib import Path

import numpy as np

from tests.integration.independent_client import TRUE_OFFSET, TRUE_SLOPE
from tests.integration.processes import Programs, status_of

CLIENT = Path(__file__).with_name("independent_client.py")


def test_the_independent_client_is_short_and_shares_no_code() -> None:
    text = CLIENT.read_text()
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert len(text.splitlines()) < 150
    assert not {name.split(".")[0] for name in imported} & {
        "ps_common",
        "ps_client",
        "ps_server",
        "rl_worker",
        "torch",
        "msgspec",
    }


def test_two_independent_clients_fit_a_regression_together(programs: Programs) -> None:
    _, endpoint = programs.start_server("--lease-seconds", "30")
    module = "tests.integration.independent_client"
    clients = [programs.start(module, endpoint, name, "200", str(seed)) for seed, name in enumerate("ab")]
    for client in clients:
        assert client.wait() == 0, client.output
        fitted = np.array(client.output.split(), dtype=float)
        np.testing.assert_allclose(fitted, [*TRUE_SLOPE, TRUE_OFFSET], atol=1e-3)
    status = status_of(endpoint)
    assert status.updates == 400
    assert status.global_steps == 400 * 16
    assert [worker.pushes for worker in status.workers] == [200, 200]
    assert status.workers_alive == 0
