"""
`make bench`: one table, each row a ratio that was measured in one run; also written to benchmarks/latest.json.

It takes less than ten minutes. With NAMES: only those rows whose names contain one of them.
"""

import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path

import psutil

from benchmarks.command_loop import Measured, figures_of, total
from benchmarks.servers import serving
from benchmarks.table import Row, in_turn, show
from benchmarks.training import run_of, steps_of_unroll
from ps_common.sockets.curve import write_pair
from ps_common.sockets.request import status_of

TURNS = 5
WINDOW_SECONDS = 1.5
TRAINING_WINDOW_SECONDS = 9.0
SCRIPTS = Path(sys.executable).parent
PONG = {  # by pixels per side of a frame
    42: ["--preset", "pong-a3c"],
    84: ["--preset", "pong-a3c", "--preprocessing", "atari84", "--network", "conv84", "--normalization", "none"],
}


def main(names: list[str]) -> None:
    measured: list[Row] = []
    for name, row in _rows().items():
        if not names or any(part in name for part in names):
            measured.append(row(name))
            print(f"{name}: {measured[-1].ratio:.2f}", flush=True)
    show(measured, Path(__file__).with_name("latest.json"))


def _rows() -> dict[str, Callable[[str], Row]]:
    rows: dict[str, Callable[[str], Row]] = {}
    for size, clients in product((700_000, 1_700_000, 10_000_000), (1, 2)):
        rows[f"push-pull {_size(size)}, {_clients(clients)}, one host"] = partial(same_host, size, clients)
    for size, clients in ((150_000, 1), (700_000, 1), (700_000, 2), (1_700_000, 1)):
        rows[f"push-pull {_size(size)}, {_clients(clients)}, tcp"] = partial(over_tcp, size, clients)
    for size in (700_000, 1_700_000):
        rows[f"push-pull {_size(size)}, CURVE"] = partial(over_curve, size)
    rows[f"push-pull {_size(1_700_000)}, 2 clients, p99 while checkpoints are written"] = partial(saving, 1_700_000)
    rows["pull, not modified, p50"] = partial(not_modified, "p50")
    for pixels, flags in PONG.items():
        rows[f"training pong-a3c {pixels}x{pixels}, 2 workers"] = partial(against_parts, flags)
    return rows


def same_host(size: int, clients: int, name: str) -> Row:
    """Round trips per second with RMSProp on the server, vectors in shared memory, against PyTorch RPC."""
    with _ps_server() as server:
        ours = _clients_of(server, "ours", size, clients)
        where = f"127.0.0.1:{_free_port()}"
        ranks = [
            Measured("benchmarks.alternatives", "rpc", where, str(size), str(rank), str(clients))
            for rank in range(clients + 1)
        ]
        try:
            return _compared(name, ours, ranks[1:], against="PyTorch RPC, same update")
        finally:
            ranks[0].end()


def over_tcp(size: int, clients: int, name: str) -> Row:
    """The same over TCP, against raw pyzmq."""
    with _ps_server() as server, _raw_server(size) as raw_server:
        ours, raw = _clients_of(server, "wire", size, clients), _raw_clients_of(raw_server, size, clients)
        return _compared(name, ours, raw, against="raw pyzmq, same bytes and update")


def over_curve(size: int, name: str) -> Row:
    """The same over TCP, both encrypted."""
    with _keys() as keys, _ps_server(*_locked(keys)) as server, _raw_server(size, keys) as raw_server:
        ours, raw = _clients_of(server, "wire", size, 1, keys), _raw_clients_of(raw_server, size, 1, keys)
        return _compared(name, ours, raw, against="raw pyzmq with CURVE, same bytes and update")


def not_modified(percentile: str, name: str) -> Row:
    """Microseconds of a pull that is answered with NOT_MODIFIED."""
    with _ps_server() as server, _raw_server(1) as raw_server:
        ours, raw = _clients_of(server, "not-modified", 1, 1), _raw_clients_of(raw_server, 1, 1)
        figure = partial(_longest, percentile, WINDOW_SECONDS)
        return _compared(name, ours, raw, figure, unit="µs", against="raw pyzmq, 4 bytes each way")


def saving(size: int, name: str) -> Row:
    """The 99th percentile of round trips, in microseconds, while checkpoints are written, against none written."""
    with _ps_server("--checkpoint-seconds", "0.2") as server, _ps_server("--checkpoint-seconds", "1e9") as without:
        ours, never = _clients_of(server, "ours", size, 2), _clients_of(without, "ours", size, 2)
        figure = partial(_longest, "p99", 3 * WINDOW_SECONDS)
        return _compared(name, ours, never, figure, unit="µs", against="the same, none written")


def against_parts(flags: list[str], name: str) -> Row:
    """
    Steps per second of training with two workers, against two that act and learn without a server: the sum of the
    parts.
    """
    alone = [Measured("benchmarks.training", *flags) for _ in range(2)]
    steps = steps_of_unroll(run_of(flags))
    with _ps_server(*flags, "--max-steps", "100000000") as server:
        command = [str(SCRIPTS / "rl-worker"), "--server", server]
        workers = [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(2)]

        def done() -> int:
            return status_of(server, timeout_seconds=30).status.global_steps

        def together() -> float:
            for worker in workers:
                psutil.Process(worker.pid).resume()
            _wait(TRAINING_WINDOW_SECONDS / 3)
            before = done()
            _wait(TRAINING_WINDOW_SECONDS)
            rate = (done() - before) / TRAINING_WINDOW_SECONDS
            for worker in workers:
                psutil.Process(worker.pid).suspend()
            return rate

        def apart() -> float:
            return steps * total(alone, TRAINING_WINDOW_SECONDS / 3)

        try:
            while done() == 0:
                _wait(0.5)
            return in_turn(name, together, apart, turns=3, unit="steps/s", against="two workers without a server")
        finally:
            for process in alone:
                process.end()
            for worker in workers:
                worker.kill()
                worker.wait()


def _clients_of(server: str, kind: str, size: int, count: int, keys: str = "") -> list[Measured]:
    return [Measured("benchmarks.push_pull", kind, server, str(size), keys) for _ in range(count)]


def _raw_clients_of(server: str, size: int, count: int, keys: str = "") -> list[Measured]:
    return [Measured("benchmarks.alternatives", "raw", server, str(size), keys) for _ in range(count)]


def _rate(clients: list[Measured]) -> float:
    return total(clients, WINDOW_SECONDS)


def _longest(percentile: str, seconds: float, clients: list[Measured]) -> float:
    return max(float(getattr(figures, percentile)) for figures in figures_of(clients, seconds))


def _compared(
    name: str,
    ours: list[Measured],
    alternative: list[Measured],
    figure: Callable[[list[Measured]], float] = _rate,
    *,
    unit: str = "round trips/s",
    against: str,
) -> Row:
    """Measure both in turn, then end them."""
    try:
        return in_turn(name, lambda: figure(ours), lambda: figure(alternative), turns=TURNS, unit=unit, against=against)
    finally:
        for process in ours + alternative:
            process.end()


@contextmanager
def _keys() -> Iterator[str]:
    """A folder with the keys of both sides."""
    with tempfile.TemporaryDirectory() as folder:
        write_pair(Path(folder), "bench")
        yield folder


def _locked(keys: str) -> list[str]:
    return ["--curve-secret", f"{keys}/bench.key_secret", "--authorized-keys", keys]


@contextmanager
def _ps_server(*flags: str) -> Iterator[str]:
    """A ps-server on loopback, with RMSProp unless a preset is given; yields its HOST:PORT."""
    if "--preset" not in flags:
        flags = ("--optimizer", "rmsprop", *flags)
    with serving([str(SCRIPTS / "ps-server"), "--host", "127.0.0.1", "--port", "0", *flags]) as (address, _):
        yield address


@contextmanager
def _raw_server(size: int, keys: str = "") -> Iterator[str]:
    port = _free_port()
    server = subprocess.Popen([sys.executable, "-m", "benchmarks.alternatives", "raw", "serve", port, str(size), keys])
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def _size(size: int) -> str:
    return f"{size / 1e6:.2f} M parameters"


def _clients(clients: int) -> str:
    return f"{clients} client{'s'[: clients - 1]}"


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
