"""A real server, its standby and a worker, behind a proxy that flips bits of vectors: none of these is used."""

from contextlib import ExitStack

import numpy as np
import pytest
import torch

from benchmarks.trials.proxy import Faults, Proxy
from ps_common.settings.run_spec import Wire
from ps_common.sockets import shared_memory
from tests.integration.integer_worker import SCHEMA, joined
from tests.integration.processes import Programs, status_of, wait_for

UPDATES = 80
FLIPS = Faults(drop=0, duplicate=0, delay=0, flip=0.06)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("codec", ["float32", "delta"])
def test_weights_are_exact_behind_a_proxy_that_flips_bits(
    codec: str, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "FOLDER", "/nowhere")  # where vectors would pass the proxy by
    primary, first = programs.start_server()
    with ExitStack() as ended:
        proxy = Proxy(first, FLIPS, seed=2)
        ended.callback(proxy.close)
        folder = programs.folder / "standby"
        standby, second = programs.start_server("--standby-of", proxy.endpoint, run_dir=folder)
        wire = Wire(checksums=True, weight_codec=codec)  # type: ignore[arg-type]
        parameters, newest, connections = joined(proxy.endpoint, "w", SCHEMA, wire=wire)
        ended.callback(connections.close)
        wait_for(lambda: "follows as the standby" in primary.output, program=primary)
        drawn, total = np.random.default_rng(5), np.zeros(SCHEMA.size)
        for _ in range(UPDATES):
            gradient = drawn.integers(-1, 2, size=SCHEMA.size).astype(np.float32)
            total += gradient
            newest = parameters.push_pull(torch.from_numpy(gradient), computed_on=newest, steps=1)
            assert newest.weights is not None
            np.testing.assert_array_equal(newest.weights.numpy(), -total)
        wait_for(lambda: status_of(second).version == 1 + UPDATES, program=standby)
        assert status_of(first).refused["damaged"] > 0
        assert status_of(second).refused["damaged"] > 0
        assert proxy.flipped > status_of(first).refused["damaged"] + status_of(second).refused["damaged"]
