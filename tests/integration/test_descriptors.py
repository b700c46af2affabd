"""Strangers that connect and say nothing leave descriptors for checkpoints, and for workers that come later."""

import contextlib
import socket
from pathlib import Path

import numpy as np

from ps_common.protocol import messages
from ps_common.sockets.request import ask
from tests.integration.independent_client import Client
from tests.integration.processes import Programs, wait_for
from tests.zmtp import connected

DESCRIPTORS = 200
STRANGERS = 400


def test_idle_strangers_leave_descriptors_for_checkpoints_and_workers(programs: Programs, tmp_path: Path) -> None:
    few = ("sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh")
    server, endpoint = programs.start_server("--checkpoint-seconds", "3600", prefix=few)
    honest = Client(endpoint, "honest")
    honest.join([{"name": "w", "shape": [3], "dtype": "float32"}], np.zeros(3))
    honest.pull()
    with contextlib.ExitStack() as strangers:
        for number in range(STRANGERS):
            with contextlib.suppress(OSError):  # cut off while hands were shaken
                shake = connected if number % 2 else _silent
                strangers.enter_context(shake(endpoint))
        wait_for(lambda: "one of the last descriptors" in server.output, program=server)
        honest.push_pull(np.ones(3), steps=1)
        saved, _ = ask(endpoint, messages.CheckpointRequest(request=1), timeout_seconds=60)
        assert isinstance(saved, messages.CheckpointSaved)
        assert saved.version == 2
        late = Client(endpoint, "late")
        late.join([{"name": "w", "shape": [3], "dtype": "float32"}], np.zeros(3))
        late.leave()
    honest.leave()


def _silent(endpoint: str) -> socket.socket:
    """A connection that does not even greet."""
    host, _, port = endpoint.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=2)
