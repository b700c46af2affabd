"""The shell of the worker's machine, over a real socket: calls and futures, GOODBYE, and every way it can end."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from ps_client.machine import handshake, patience
from ps_client.machine.parameter_client import Call, ParameterClient
from ps_client.shell import zmq_client
from ps_client.shell.shard_connections import ShardConnections
from ps_client.shell.stall_watch import StallWatch
from ps_client.shell.zmq_client import ZmqClient
from ps_common.errors import ServerUnreachable
from ps_common.protocol import messages
from ps_common.protocol.lineage import MOST_SHARDS
from ps_common.protocol.messages import ToServer
from ps_common.protocol.wire import PROTOCOL_TAG
from ps_common.run_folder.endpoint_file import write_endpoint
from tests.ps_client.client_transcripts import PATIENCE_SECONDS, SCHEMA, new_client, vector, welcome
from tests.ps_client.loopback_server import LoopbackServer, Polite, Reply, serving, wait_until

SECONDS = 20.0  # until a wait has failed


@contextmanager
def connected(
    server: LoopbackServer, machine: ParameterClient | None = None, *, watch: StallWatch | None = None
) -> Iterator[ZmqClient]:
    """A client for the length of a block; its thread ends with the block."""
    client = ZmqClient(server.address, machine or machine_now(), watch=watch)
    try:
        yield client
    finally:
        client.close()
        assert "zmq-client" not in {thread.name for thread in threading.enumerate()}


def machine_now(patience_seconds: float = PATIENCE_SECONDS) -> ParameterClient:
    """A machine on the clock of the shell."""
    return new_client(now=time.monotonic(), patience_seconds=patience_seconds)


def pull(machine: ParameterClient) -> partial[Call]:
    return partial(machine.pull, have_epoch=0, have_version=0)


def test_a_long_vector_arrives_whole() -> None:
    machine = machine_now()
    gradient = bytes(range(256)) * 40_000  # 10 MB: three frames

    class Receipt(Polite):
        def reply(self, message: ToServer, vector: bytes) -> Reply:
            if isinstance(message, messages.Push):
                return self.newest(message.request)
            return super().reply(message, vector)

    with serving(Receipt()) as server, connected(server, machine) as client:
        client.call(partial(machine.seed, SCHEMA, "float32", vector(0, 0))).result(SECONDS)
        push = partial(machine.push, "float32", [memoryview(gradient)], epoch=1, computed_on=1, steps=3)
        client.call(push).result(SECONDS)
        (pushed,) = [whole for _, message, whole in server.received if isinstance(message, messages.Push)]
        assert pushed == gradient


@pytest.mark.parametrize("former", ["gone", "another run's"])
def test_a_client_follows_a_server_that_moved(tmp_path: Path, former: str) -> None:
    class OfAnotherRun(Polite):
        def reply(self, message: ToServer, vector: bytes) -> Reply:
            return messages.Refused(request=message.request, code="other_run", reason="another run is served here")

    machine = machine_now()
    with serving(OfAnotherRun()) as other, serving() as server:
        write_endpoint(tmp_path / "endpoint", other.address)
        if former == "gone":
            other.close()
        client = ZmqClient(str(tmp_path / "endpoint"), machine)
        future = client.call(pull(machine))
        if former != "gone":
            wait_until(lambda: len(other.received_of(messages.Hello)) >= 2, "two refusals")
        write_endpoint(tmp_path / "endpoint", server.address)
        reply, _ = future.result(SECONDS)
        assert isinstance(reply, messages.Weights)
        client.close()


def test_heartbeats_go_out_while_the_trainer_computes() -> None:
    class ShortLease(Polite):
        def reply(self, message: ToServer, vector: bytes) -> Reply:
            if isinstance(message, messages.Hello):
                return welcome(message.request, lease_seconds=0.2)
            return super().reply(message, vector)

    with serving(ShortLease()) as server, connected(server):
        wait_until(lambda: len(server.received_of(messages.Heartbeat)) >= 3, "three heartbeats")


def test_a_hostile_server_fills_no_log_and_hides_no_warning_of_its_worker(caplog: pytest.LogCaptureFixture) -> None:
    class Hostile(Polite):
        refusals = 0

        def replies(self, peer: bytes, message: ToServer, vector: bytes) -> Sequence[Reply]:
            if not isinstance(message, messages.Heartbeat | messages.Pull):
                return super().replies(peer, message, vector)
            news: list[Reply] = []
            for _ in range(100):  # each with a reason that was not there before
                self.refusals += 1
                code, reason = "other_run", f"another run, the {self.refusals}th time"
                news.append(messages.Refused(request=message.request, code=code, reason=reason))
            return [*[[b"ps-rl/1", b"\xc1"] for _ in range(500)], *news, *super().replies(peer, message, vector)]

    machine = machine_now()
    watch = StallWatch(least_seconds=0.01, now=time.monotonic())
    with serving(Hostile()) as server, connected(server, machine, watch=watch) as client:
        client.call(pull(machine)).result(SECONDS)
        wait_until(lambda: "the trainer is stalled here" in caplog.text, "its own warning is there")
    assert 0 < sum(server.address in record.getMessage() for record in caplog.records) < 30


def test_a_hostile_server_that_names_many_shards_takes_few_descriptors() -> None:
    class Manifold(Polite):
        shards = MOST_SHARDS

        def replies(self, peer: bytes, message: ToServer, vector: bytes) -> Sequence[Reply]:
            if not isinstance(message, messages.Hello):
                return super().replies(peer, message, vector)
            plain = msgspec.to_builtins(welcome(message.request))
            plain["shard"] = {"number": 1, "addresses": ["127.0.0.1:1"] * self.shards}
            return [[PROTOCOL_TAG, msgspec.msgpack.encode(plain)]]

    before, most = len(os.listdir("/proc/self/fd")), 0
    for shards in (MOST_SHARDS, MOST_SHARDS + 1, 5000):
        behaviour = Manifold()
        behaviour.shards = shards
        with serving(behaviour) as server:
            worker = ShardConnections("w", server.address, proposed_run={}, patience_seconds=0.5, resend_mib=1)
            with pytest.raises(ServerUnreachable):
                worker.join()
            most = max(most, len(os.listdir("/proc/self/fd")) - before)
            worker.close()
    assert most < 900, "a process may have 1024"
    assert len(os.listdir("/proc/self/fd")) == before


def test_nobody_waits_for_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls end in their time meanwhile, and the name is used once it is found: at first, and when the link is anew."""
    asked, answers = threading.Semaphore(0), threading.Semaphore(0)

    def look_up(_: str) -> tuple[bool, str]:
        asked.release()
        assert answers.acquire(timeout=SECONDS)
        return False, ""

    monkeypatch.setattr(zmq_client, "look_up", look_up)
    machine = machine_now()
    with serving() as server:
        client = ZmqClient(f"localhost:{server.port}", machine)
        for number in range(2):
            assert asked.acquire(timeout=SECONDS)
            pending = client.call(pull(machine))  # with the lock, in postponed signals
            with pytest.raises(TimeoutError):
                pending.result(0.05)
            answers.release()
            pending.result(SECONDS)
            if number == 0:
                with client._lock:
                    client._do(machine.reconnect(now=time.monotonic()))
        client.close()


def test_patience_ends_every_call_and_the_joining() -> None:
    class Silent(Polite):
        def replies(self, peer: bytes, message: ToServer, vector: bytes) -> Sequence[Reply]:
            return []

    machine = machine_now(patience_seconds=0.3)
    with serving(Silent()) as server, connected(server, machine) as client:
        future = client.call(pull(machine))
        for pending in (future, client.welcome):
            with pytest.raises(ServerUnreachable):
                pending.result(SECONDS)


def test_a_client_whose_process_was_paused_beyond_its_patience_goes_on_and_says_at_once_that_it_lives() -> None:
    machine = machine_now(patience_seconds=30.0)
    with serving() as server, connected(server, machine) as client:
        client.welcome.result(SECONDS)
        before = len(server.received_of(messages.Heartbeat))
        client._clock._read -= 10_000.0  # as if it had not been read for so long
        client.call(pull(machine)).result(SECONDS)
        wait_until(lambda: len(server.received_of(messages.Heartbeat)) > before, "the lease is renewed")
        client.call(pull(machine)).result(SECONDS)


def test_a_connection_that_went_silent_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    class DeafToTheFirst(Polite):
        """Replies on all connections but the first."""

        deaf_to: bytes = b""

        def replies(self, peer: bytes, message: ToServer, vector: bytes) -> Sequence[Reply]:
            self.deaf_to = self.deaf_to or peer
            return [] if peer == self.deaf_to else super().replies(peer, message, vector)

    monkeypatch.setattr(patience, "TIMEOUT_SECONDS", 0.3)
    monkeypatch.setattr(handshake, "SLOWEST_HELLO_SECONDS", 0.05)
    machine = machine_now()
    with serving(DeafToTheFirst()) as server, connected(server, machine) as client:
        client.call(pull(machine)).result(SECONDS)
        peers = [peer for peer, message, _ in server.received if isinstance(message, messages.Hello)]
        assert len(set(peers)) == 2


def test_a_stalled_trainer_is_reported_to_the_server_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    watch = StallWatch(0.05, now=time.monotonic())
    machine = machine_now()

    def heartbeats(server: LoopbackServer, *, stalled: bool) -> int:
        return sum(isinstance(one, messages.Heartbeat) and one.stalled == stalled for _, one, _ in server.received)

    with serving() as server:
        client = ZmqClient(server.address, machine, watch=watch)
        client.welcome.result(SECONDS)
        wait_until(lambda: heartbeats(server, stalled=True), "the server is informed")  # this thread is the trainer's
        wait_until(lambda: any("no step for" in record.getMessage() for record in caplog.records), "the log has it")
        before = heartbeats(server, stalled=False)

        def progress_is_reported() -> bool:
            watch.progressed()
            return heartbeats(server, stalled=False) > before

        wait_until(progress_is_reported, "the server is informed that the trainer goes on")
        client.close()
    stack, line = (record.getMessage() for record in caplog.records if record.levelname == "WARNING")
    assert "the trainer is stalled here" in stack
    assert "test_a_stalled_trainer_is_reported" in stack
    assert "loopback_server.py, line" in line or "threading.py, line" in line
