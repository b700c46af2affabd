"""The shell of the worker's machine, over a real socket: calls and futures, goodbye, and every way it can end."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pytest

from common.errors import PsRlError, RunEnded, ServerUnreachable
from common.protocol import messages
from common.protocol.messages import ToServer
from rl_worker.machine import link_timeout as silence
from rl_worker.machine import parameter_client
from rl_worker.machine.parameter_client import ParameterClient
from rl_worker.machine.stall_watch import StallWatch
from rl_worker.shell.zmq_client import ZmqClient
from tests.rl_worker.client_transcripts import SCHEMA, new_client, vector, welcome
from tests.rl_worker.loopback_server import Answer, LoopbackServer, Polite, serving, wait_until

SECONDS = 20.0  # for whatever a test waits for


@contextmanager
def connected(server: LoopbackServer, machine: ParameterClient | None = None) -> Iterator[ZmqClient]:
    """A client for the length of a block; its thread has ended after it."""
    client = ZmqClient(server.address, machine or machine_now())
    try:
        yield client
    finally:
        client.close()
        assert "zmq-client" not in {thread.name for thread in threading.enumerate()}


def machine_now() -> ParameterClient:
    """A machine that begins now on the clock of the shell."""
    return new_client(now=time.monotonic())


def pull(machine: ParameterClient) -> partial[parameter_client.Call]:
    return partial(machine.pull, have_epoch=0, have_version=0)


def test_it_joins_and_a_call_gets_its_reply() -> None:
    machine = machine_now()
    with serving() as server, connected(server, machine) as client:
        assert client.welcome.result(SECONDS).number == 0
        reply, brought = client.call(pull(machine)).result(SECONDS)
        assert isinstance(reply, messages.Weights)
        assert b"".join(bytes(part) for part in brought) == Polite().weights.tobytes()


def test_calls_made_before_the_server_is_there_are_answered() -> None:
    machine = machine_now()
    with serving() as server:
        address = server.address
    client = ZmqClient(address, machine)  # nobody listens there
    future = client.call(pull(machine))
    assert not future.done()
    client.close()
    with pytest.raises(PsRlError, match="closed"):
        future.result(SECONDS)


def test_a_long_vector_arrives_whole() -> None:
    machine = machine_now()
    gradient = bytes(range(256)) * 40_000  # 10 MB: three frames

    class Receipt(Polite):
        def answer(self, message: ToServer, vector: bytes) -> Answer:
            if isinstance(message, messages.Push):
                return self.newest(message.request)
            return super().answer(message, vector)

    with serving(Receipt()) as server, connected(server, machine) as client:
        client.call(partial(machine.seed, SCHEMA, "float32", vector(0, 0))).result(SECONDS)
        push = partial(machine.push, "float32", [memoryview(gradient)], epoch=1, computed_on=1, steps=3)
        client.call(push).result(SECONDS)
        (pushed,) = [whole for _, message, whole in server.heard if isinstance(message, messages.Push)]
        assert pushed == gradient


def test_close_says_goodbye_with_the_reason_and_ends_the_thread() -> None:
    with serving() as server:
        client = ZmqClient(server.address, machine_now())
        client.welcome.result(SECONDS)
        client.close("interrupted")
        assert [goodbye.reason for goodbye in server.said(messages.Goodbye)] == ["interrupted"]
        assert "zmq-client" not in {thread.name for thread in threading.enumerate()}


def test_close_does_not_wait_for_a_server_that_is_not_there() -> None:
    with serving() as server:
        address = server.address
    client = ZmqClient(address, machine_now())
    started = time.monotonic()
    client.close()
    assert time.monotonic() - started < 10.0
    with pytest.raises(PsRlError, match="closed"):
        client.welcome.result(0)


def test_heartbeats_go_out_while_the_trainer_computes() -> None:
    class ShortLease(Polite):
        def answer(self, message: ToServer, vector: bytes) -> Answer:
            if isinstance(message, messages.Hello):
                return welcome(message.request, lease_seconds=0.2)
            return super().answer(message, vector)

    with serving(ShortLease()) as server, connected(server):
        wait_until(lambda: len(server.said(messages.Heartbeat)) >= 3, "three heartbeats")


def test_an_unreadable_reply_is_told_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    class Mumbling(Polite):
        def answers(self, peer: bytes, message: ToServer, vector: bytes) -> Sequence[Answer]:
            return [[b"ps-rl/1", b"\xc1"], [b"?"], *super().answers(peer, message, vector)]

    machine = machine_now()
    with serving(Mumbling()) as server, connected(server, machine) as client:
        client.call(pull(machine)).result(SECONDS)
    assert f"the server at {server.address} sent something unreadable: bad header" in caplog.text


def test_when_the_run_is_over_every_call_says_so() -> None:
    class Over(Polite):
        def answer(self, message: ToServer, vector: bytes) -> Answer:
            if isinstance(message, messages.Pull):
                return messages.Stop(reason="the target is reached")
            return super().answer(message, vector)

    machine = machine_now()
    with serving(Over()) as server, connected(server, machine) as client:
        for _ in range(2):
            with pytest.raises(RunEnded, match="the target is reached"):
                client.call(pull(machine)).result(SECONDS)


def test_patience_ends_every_call_and_the_joining() -> None:
    class Silent(Polite):
        def answers(self, peer: bytes, message: ToServer, vector: bytes) -> Sequence[Answer]:
            return []

    machine = machine_now()
    machine._patience_seconds = 0.3
    with serving(Silent()) as server, connected(server, machine) as client:
        future = client.call(pull(machine))
        for waiting in (future, client.welcome):
            with pytest.raises(ServerUnreachable):
                waiting.result(SECONDS)


def test_a_connection_that_went_silent_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    class DeafInOneEar(Polite):
        """Answers all connections but the first."""

        deaf_to: bytes = b""

        def answers(self, peer: bytes, message: ToServer, vector: bytes) -> Sequence[Answer]:
            self.deaf_to = self.deaf_to or peer
            return [] if peer == self.deaf_to else super().answers(peer, message, vector)

    monkeypatch.setattr(silence, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(parameter_client, "SLOWEST_HELLO_SECONDS", 0.05)
    machine = machine_now()
    with serving(DeafInOneEar()) as server, connected(server, machine) as client:
        client.call(pull(machine)).result(SECONDS)
        peers = [peer for peer, message, _ in server.heard if isinstance(message, messages.Hello)]
        assert len(set(peers)) == 2


def fail(*_: object, **__: object) -> parameter_client.Call:
    raise ZeroDivisionError("our own mistake")


def test_a_machine_that_fails_fails_every_call_now_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hesitant(Polite):
        def answer(self, message: ToServer, vector: bytes) -> Answer:
            return None if isinstance(message, messages.Pull) else super().answer(message, vector)

    machine = machine_now()
    with serving(Hesitant()) as server, connected(server, machine) as client:
        client.welcome.result(SECONDS)
        waiting = client.call(pull(machine))
        wait_until(lambda: server.said(messages.Pull), "the pull arrives")
        monkeypatch.setattr(machine, "tick", fail)
        for future in (waiting, client.call(pull(machine)), client.call(pull(machine))):
            with pytest.raises(ZeroDivisionError, match="our own mistake"):
                future.result(SECONDS)


def test_a_machine_that_fails_while_it_joins_fails_the_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = machine_now()
    monkeypatch.setattr(machine, "tick", fail)
    with serving() as server, connected(server, machine) as client, pytest.raises(ZeroDivisionError):
        client.welcome.result(SECONDS)


def test_a_call_that_fails_in_the_machine_fails_for_its_caller() -> None:
    with serving() as server, connected(server) as client:
        client.welcome.result(SECONDS)
        with pytest.raises(ZeroDivisionError):
            client.call(fail).result(SECONDS)
        with pytest.raises(ZeroDivisionError):
            client.call(fail).result(SECONDS)


def test_a_call_after_close_is_refused() -> None:
    machine = machine_now()
    with serving() as server:
        client = ZmqClient(server.address, machine)
        client.welcome.result(SECONDS)
        client.close()
        with pytest.raises(PsRlError, match="the connection to the server was closed"):
            client.call(pull(machine)).result(SECONDS)


def test_a_trainer_that_stands_still_is_told_to_the_server_and_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    watch = StallWatch(0.05, now=time.monotonic())
    machine = machine_now()

    def beats(server: LoopbackServer, *, stalled: bool) -> int:
        return sum(isinstance(one, messages.Heartbeat) and one.stalled == stalled for _, one, _ in server.heard)

    with serving() as server:
        client = ZmqClient(server.address, machine, watch=watch)
        client.welcome.result(SECONDS)
        wait_until(lambda: beats(server, stalled=True), "the server hears of it")  # this thread is the trainer's
        wait_until(lambda: any("no step for" in record.getMessage() for record in caplog.records), "the log has it")
        before = beats(server, stalled=False)

        def moves_and_is_heard() -> bool:
            watch.moved(now=time.monotonic())
            return beats(server, stalled=False) > before

        wait_until(moves_and_is_heard, "the server hears that it goes on")
        client.close()
    stack, line = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "where the trainer stands" in stack
    assert "test_a_trainer_that_stands_still_is_told" in stack
    assert "loopback_server.py, line" in line or "threading.py, line" in line


def test_who_waits_for_the_server_does_not_stand_still(caplog: pytest.LogCaptureFixture) -> None:
    """It answers nothing but heartbeats for longer than a standstill takes."""
    watch = StallWatch(0.01, now=time.monotonic())
    machine = machine_now()
    beats = threading.Semaphore(0)

    class Slow(Polite):
        def answer(self, message: ToServer, vector: bytes) -> Answer:
            if isinstance(message, messages.Heartbeat):
                beats.release()
            return None if isinstance(message, messages.Pull) else super().answer(message, vector)

    with serving(Slow()) as server:
        client = ZmqClient(server.address, machine, watch=watch)
        client.welcome.result(SECONDS)
        with pytest.raises(TimeoutError):
            client.call(pull(machine)).result(2.0)
        client.close()
        assert beats.acquire(blocking=False), "long enough for a heartbeat"
        assert not any(isinstance(one, messages.Heartbeat) and one.stalled for _, one, _ in server.heard)
    assert not caplog.records
