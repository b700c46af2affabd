"""Subscribers that read slowly, or not at all: a real socket, and memory with an end."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from ps_common.protocol import messages
from ps_common.protocol.wire import read_to_worker, to_frames
from ps_server.machine.flow_control import Limits
from ps_server.machine.parameter_server import ParameterServer
from ps_server.machine.subscriptions import MOST_SUBSCRIBERS
from ps_server.shell.send_queue import MOST_EVENTS_WAITING
from ps_server.shell.zmq_server import ZmqServer
from ps_server.state.effects import LogLine
from ps_server.storage.checkpoint_writer import CheckpointWriter
from tests.integration.processes import wait_for
from tests.ps_server.transcripts import a_lineage

EVENTS = 1500


class Here:
    """A server in a thread of this process, and sockets that talk to it."""

    def __init__(self, folder: Path) -> None:
        lineage, limits = a_lineage(epoch=1), Limits(lease_seconds=60.0, checkpoint_seconds=1e6)
        self.machine = ParameterServer(None, lineage=lineage, overrides={}, limits=limits, now=time.monotonic())
        self.shell = ZmqServer(self.machine, CheckpointWriter(folder), host="127.0.0.1", port=0)
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._sockets: list[zmq.Socket[bytes]] = []
        self._over = threading.Event()
        self._events = 0  # to be noted by the thread that serves
        ignore: Any = lambda _: None  # noqa: E731
        serve = {"leaving": self._step, "on_tick": ignore, "on_record": ignore}
        self._thread = threading.Thread(target=self.shell.serve, kwargs=serve)
        self._thread.start()

    def note(self, events: int) -> None:
        """Let so many events happen."""
        self._events = events
        wait_for(lambda: self._events == 0)

    def subscriber(self, *, buffer_bytes: int = 4096) -> zmq.Socket[bytes]:
        socket = self.context.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVHWM, 1)
        socket.setsockopt(zmq.RCVBUF, buffer_bytes)
        socket.connect(f"tcp://127.0.0.1:{self.shell.port}")
        socket.send_multipart(to_frames(messages.Subscribe(request=1)))
        self._sockets.append(socket)
        return socket

    def close(self) -> None:
        self.context.destroy(linger=0)
        self._over.set()
        self._thread.join()
        self.shell.close()

    def _step(self) -> bool:
        count, self._events = min(self._events, 100), max(0, self._events - 100)
        self.shell._do([LogLine("x" * 500, kind="adjustment") for _ in range(count)])
        return self._over.is_set()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    here = Here(tmp_path)
    yield here
    here.close()


def received(socket: zmq.Socket[bytes]) -> messages.Message:
    assert socket.poll(30_000), "nothing came"
    return read_to_worker(socket.recv_multipart())[0]


def test_subscribers_that_never_read_hold_a_bounded_number_of_events_and_others_are_served(here: Here) -> None:
    sockets = [here.subscriber() for _ in range(MOST_SUBSCRIBERS)]
    wait_for(lambda: len(here.machine.subscriptions._until) == MOST_SUBSCRIBERS)
    one_more = here.subscriber()
    refused = received(one_more)
    assert isinstance(refused, messages.Refused)
    assert refused.code == "too_many_subscribers"
    here.note(EVENTS)
    queues = here.shell._replies._queues.values()
    assert 0 < len(queues) <= len(sockets)
    assert MOST_EVENTS_WAITING / 2 < max(len(queue.events) for queue in queues) <= MOST_EVENTS_WAITING
    one_more.send_multipart(to_frames(messages.StatusRequest(request=2)))
    assert isinstance(received(one_more), messages.StatusReply)
