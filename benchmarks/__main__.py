"""`make bench`: one table, each row a ratio in the same run; also written to benchmarks/latest.json."""

import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.command_loop import Measured, total
from benchmarks.table import Row, in_turn, show
from benchmarks.training import ENVIRONMENTS, steps_counted

TURNS = 5
WINDOW_SECONDS = 2.0
TRAINING_WINDOW_SECONDS = 15.0
SIZES = [150_000, 700_000, 1_700_000]
SCRIPTS = Path(sys.executable).parent


def main() -> None:
    rows = [push_pull(size, clients) for size in SIZES for clients in (1, 2)]
    rows += [kept(size) for size in (150_000, 1_700_000)]
    rows += [not_modified(), training()]
    show(rows, Path(__file__).with_name("latest.json"))


def push_pull(size: int, clients: int) -> Row:
    """Round trips a second with RMSProp on the server."""
    return _against_raw(
        f"push-pull {size / 1e6:.2f} M parameters, {clients} client{'s'[: clients - 1]}, tcp",
        "ours",
        size,
        clients,
        against="raw pyzmq, same bytes and update",
    )


def kept(size: int) -> Row:
    """What it costs to keep pushes until they are durable."""
    with _ps_server("--optimizer", "rmsprop") as server:
        ours, without = (Measured("benchmarks.push_pull", kind, server, str(size)) for kind in ("kept", "not-kept"))
        try:
            return in_turn(
                f"push-pull {size / 1e6:.2f} M parameters, pushes kept until durable",
                lambda: total([ours], WINDOW_SECONDS),
                lambda: total([without], WINDOW_SECONDS),
                turns=TURNS,
                unit="round trips/s",
                against="the same, none kept",
            )
        finally:
            ours.end()
            without.end()


def not_modified() -> Row:
    """Pulls of weights that the client has."""
    return _against_raw("pull, not modified", "not-modified", 1, 1, against="raw pyzmq, 4 bytes each way")


def training() -> Row:
    """Steps a second of the preset pong-a3c with two workers against the same environment without a learner."""
    with _ps_server("--preset", "pong-a3c", "--max-steps", "100000000") as server:
        command = [str(SCRIPTS / "rl-worker"), "--server", server]
        workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]
        alone = Measured("benchmarks.training", "alone", "84")

        def train() -> float:
            for worker in workers:
                psutil.Process(worker.pid).resume()
            _wait(TRAINING_WINDOW_SECONDS / 3)
            before = steps_counted(server)
            _wait(TRAINING_WINDOW_SECONDS)
            rate = (steps_counted(server) - before) / TRAINING_WINDOW_SECONDS
            for worker in workers:
                psutil.Process(worker.pid).suspend()
            return rate

        try:
            while steps_counted(server) == 0:
                _wait(0.5)
            return in_turn(
                "training pong-a3c 84x84x4, 2 workers",
                train,
                lambda: ENVIRONMENTS * total([alone], TRAINING_WINDOW_SECONDS / 3),
                turns=3,
                unit="steps/s",
                against="AtariVectorEnv(16, 2 threads) alone",
            )
        finally:
            alone.end()
            for worker in workers:
                worker.kill()
                worker.wait()


def _against_raw(name: str, kind: str, size: int, clients: int, *, against: str) -> Row:
    with _ps_server("--optimizer", "rmsprop") as server, _raw_server(size) as raw_server:
        ours = [Measured("benchmarks.push_pull", kind, server, str(size)) for _ in range(clients)]
        raw = [Measured("benchmarks.push_pull", "raw", raw_server, str(size)) for _ in range(clients)]
        try:
            return in_turn(
                name,
                lambda: total(ours, WINDOW_SECONDS),
                lambda: total(raw, WINDOW_SECONDS),
                turns=TURNS,
                unit="round trips/s",
                against=against,
            )
        finally:
            for process in ours + raw:
                process.end()


@contextmanager
def _ps_server(*flags: str) -> Iterator[str]:
    """A ps-server on loopback; its HOST:PORT."""
    with tempfile.TemporaryDirectory() as folder:
        endpoint = Path(folder) / "endpoint"
        command = [str(SCRIPTS / "ps-server"), "--host", "127.0.0.1", "--port", "0", "--run-dir", folder, *flags]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not (endpoint.exists() and endpoint.read_text().strip()):
                assert server.poll() is None, f"{command} has failed"
                _wait(0.05)
            yield endpoint.read_text().strip()
        finally:
            server.terminate()
            server.wait()


@contextmanager
def _raw_server(size: int) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = str(probe.getsockname()[1])
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.push_pull", "serve", port, str(size)])
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


if __name__ == "__main__":
    main()
