"""CURVE with real programs: a peer without an authorised key gets no answer; a worker's key is not an admin's."""

import contextlib
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from ps_common.errors import RequestRefused, ServerUnreachable
from ps_common.protocol import messages
from ps_common.protocol.messages import ToWorker
from ps_common.protocol.wire import read_to_worker, to_frames
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import ask
from ps_common.sockets.zmq_sockets import dealer
from ps_ctl.folder_commands import add_keys, make_keys
from ps_rl import Run
from tests.integration.integer_worker import keys_of
from tests.integration.processes import Program, Programs, wait_for
from tests.zmtp import COMMAND, GREETING, LONG

SILENCE_SECONDS = 0.5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keys = tmp_path / "keys"
    make_keys(keys)
    return keys


def locked_server(programs: Programs, folder: Path, *flags: str) -> tuple[Program, str]:
    own, authorized = str(folder / "server.key_secret"), str(folder / "authorized")
    return programs.start_server("--curve-secret", own, "--authorized-keys", authorized, *flags)


def flags_of(folder: Path, name: str) -> list[str]:
    return ["--curve-server-key", str(folder / "server.key"), "--curve-secret", str(folder / f"{name}.key_secret")]


def is_answered(endpoint: str, keys: ClientKeys | None, *, within_seconds: float = 10.0) -> bool:
    try:
        ask(endpoint, messages.StatusRequest(request=1), timeout_seconds=within_seconds, keys=keys)
    except ServerUnreachable as error:
        names_flags = "--curve-server-key" in str(error)
    else:
        return True
    assert names_flags == (keys is None), "the flags that are lacking are named"
    return False


def test_a_worker_with_a_key_trains_and_an_admin_ends_the_run(programs: Programs, folder: Path) -> None:
    server, endpoint = locked_server(programs, folder, "--preset", "cartpole")
    assert "anybody who reaches this port" not in server.output
    worker = programs.start("rl-worker", "--server", endpoint, *flags_of(folder, "worker"))

    def has_trained() -> bool:
        request = messages.StatusRequest(request=1)
        reply, _ = ask(endpoint, request, timeout_seconds=10, keys=keys_of(folder, "worker"))
        assert isinstance(reply, messages.StatusReply)
        return reply.status.global_steps > 0

    wait_for(has_trained, program=worker)
    evaluation = ["--server", endpoint, "--episodes", "1", *flags_of(folder, "worker")]
    assert programs.start("rl-eval", *evaluation).wait() == 0
    for command in (["stop"], ["set", "learning_rate=1"], ["pause"]):
        refused = programs.start("ps-ctl", *command, "--server", endpoint, *flags_of(folder, "worker"))
        assert refused.wait() != 0
        assert "not_admin" in refused.output
    adjusted = programs.start("ps-ctl", "set", "learning_rate=1e-5", "--server", endpoint, *flags_of(folder, "admin"))
    assert adjusted.wait() == 0
    assert programs.start("ps-ctl", "checkpoint", "--server", endpoint, *flags_of(folder, "admin")).wait() == 0
    assert programs.start("ps-ctl", "stop", "--server", endpoint, *flags_of(folder, "admin")).wait() == 0
    assert (server.wait(), worker.wait()) == (0, 0)


def test_a_locked_run_is_stopped_and_steered_from_python_by_an_admin_alone(
    programs: Programs, folder: Path, tmp_path: Path
) -> None:
    server, _ = locked_server(programs, folder, "--preset", "cartpole", "--run-dir", str(tmp_path / "run"))

    def opened(name: str | None) -> Run:
        public, secret = (folder / "server.key", folder / f"{name}.key_secret") if name else (None, None)
        return Run.open(tmp_path / "run", curve_server_key=public, curve_secret=secret)

    with pytest.raises(RequestRefused, match="not_admin"):
        opened("worker").stop("enough")
    opened("admin").pause()
    opened("admin").stop("enough")
    assert server.wait() == 0
    assert not opened("worker").is_live


def test_nobody_else_is_answered(programs: Programs, folder: Path, tmp_path: Path) -> None:
    server, endpoint = locked_server(programs, folder)
    make_keys(tmp_path / "others")
    stranger = ClientKeys(keys_of(folder, "worker").server, keys_of(tmp_path / "others", "worker").own)
    impostor = ClientKeys(keys_of(tmp_path / "others", "worker").server, keys_of(folder, "worker").own)
    for keys in (None, stranger, impostor):
        assert not is_answered(endpoint, keys, within_seconds=SILENCE_SECONDS)
    assert "connection refused: the key" in server.output
    assert is_answered(endpoint, keys_of(folder, "worker")), "the others have done no harm"


@pytest.mark.timeout(120)
def test_who_has_no_authorised_key_fills_no_memory(programs: Programs, folder: Path) -> None:
    """Commands of a handshake that do not end, of 16 MiB each, on many connections: each is cut off, or times out."""
    server, endpoint = locked_server(programs, folder, "--receive-mib", "16")
    host, _, port = endpoint.rpartition(":")
    process = psutil.Process(server.process.pid)
    before = most = process.memory_info().rss
    command = bytes([COMMAND | LONG]) + (2**24 - 1).to_bytes(8, "big")
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(socket.create_connection((host, int(port)), timeout=60)) for _ in range(40)]
        for peer in peers:
            with contextlib.suppress(OSError):  # cut off
                peer.sendall(GREETING.replace(b"NULL".ljust(20, b"\0"), b"CURVE".ljust(20, b"\0")) + command)
                for _ in range(63):
                    peer.sendall(bytes(2**18))
                    most = max(most, process.memory_info().rss)
        for peer in peers:
            with contextlib.suppress(ConnectionError):
                while peer.recv(2**16):
                    pass
    assert most - before < 300 * 2**20, "40 times 16 MiB were sent"
    assert is_answered(endpoint, keys_of(folder, "worker"))


class OpenConnection:
    """One connection, on which any number of requests are sent."""

    def __init__(self, endpoint: str, keys: ClientKeys) -> None:
        self._socket = dealer(zmq.Context.instance(), keys)
        self._socket.connect(f"tcp://{endpoint}")
        self._request = 0

    def ask(self, kind: type[messages.ToServer], *, within_seconds: float = 10.0, **fields: Any) -> ToWorker | None:
        """The reply; None without one in time."""
        self._request += 1
        self._socket.send_multipart(to_frames(kind(request=self._request, **fields)))
        while self._socket.poll(int(within_seconds * 1000)):
            reply, _ = read_to_worker(self._socket.recv_multipart())
            if reply.request == self._request:
                return reply
        return None

    def close(self) -> None:
        self._socket.close(linger=0)


@pytest.mark.parametrize("becomes", ["authorized/demoted.key", "away.key"])
def test_an_admin_whose_key_is_moved_adjusts_and_stops_nothing_on_the_connection_that_is_open(
    programs: Programs, folder: Path, becomes: str
) -> None:
    server, endpoint = locked_server(programs, folder, "--preset", "cartpole")
    with contextlib.closing(OpenConnection(endpoint, keys_of(folder, "admin"))) as admin:
        assert isinstance(admin.ask(messages.StatusRequest), messages.StatusReply)
        (folder / "authorized" / "admins" / "admin.key").rename(folder / becomes)
        refused = admin.ask(messages.StopRequest, within_seconds=SILENCE_SECONDS)
        assert refused is None or (isinstance(refused, messages.Refused) and refused.code == "not_admin")
    assert is_answered(endpoint, keys_of(folder, "worker"))
    assert server.process.poll() is None


def test_strangers_who_knock_without_end_keep_no_right_key_out(programs: Programs, folder: Path) -> None:
    """With 300 key files, and a thousand handshakes of an unknown key before that of a right one."""
    for number in range(300):
        add_keys(folder, f"many{number}", admin=False)
    make_keys(folder / "others")
    _, endpoint = locked_server(programs, folder)
    server = keys_of(folder, "worker").server
    stranger = ClientKeys(server, keys_of(folder / "others", "worker").own)
    with zmq.Context() as context:
        context.set(zmq.MAX_SOCKETS, 2000)
        sockets = [dealer(context, stranger) for _ in range(1000)]
        for socket_ in sockets:
            socket_.connect(f"tcp://{endpoint}")
        assert is_answered(endpoint, keys_of(folder, "many0"), within_seconds=5.0)
        context.destroy(linger=0)
