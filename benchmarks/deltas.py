"""
Deltas of weights, tried on real runs: `python -m benchmarks.deltas [--presets cartpole-a3c pong-a3c]`.

While two workers train, an observer pulls every version that it can, as bfloat16. The codec `delta` encodes versions so
many updates apart; "alone" compresses one version by zlib. A saving is the bytes of bfloat16 over those of the delta, a
median; times are of one core.
"""

import argparse
import statistics
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import zmq
from rich.console import Console
from rich.table import Table

from benchmarks.servers import serving
from ps_common.protocol import messages
from ps_common.protocol.deltas import LEVEL, WHOLE, Base
from ps_common.protocol.wire import read_to_worker, to_frames
from ps_common.sockets.zmq_sockets import connect, dealer, receive_frames

APART = (1, 2, 4, 8, 16, 64)  # updates between the two versions
EVERY = 40  # versions between two measurements
PATIENCE_MILLISECONDS = 60_000


def versions(server: str, seconds: float) -> Iterator[tuple[int, bytes]]:
    """Versions of the run and their weights as bfloat16, for so long from the first update on."""
    with zmq.Context() as context, dealer(context, None) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        connect(socket, server)
        have, request, end = (0, 0), 0, 0.0
        while not end or time.monotonic() < end:
            request += 1
            pull = messages.Pull(request=request, have_epoch=have[0], have_version=have[1], codec=WHOLE)
            socket.send_multipart(to_frames(pull))
            assert socket.poll(PATIENCE_MILLISECONDS), f"{server} does not reply"
            reply, vector = read_to_worker([frame.buffer for frame in receive_frames(socket)])
            if isinstance(reply, messages.Weights):
                have = (reply.epoch, reply.version)
                end = end or time.monotonic() + seconds
                yield reply.version, b"".join(vector)
            else:
                time.sleep(0.001)


def measure(pulled: dict[int, bytes]) -> dict[int, list[tuple[float, float]]]:
    """(saving, milliseconds of one delta) by updates apart; 0 apart: one version alone."""
    found: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for version in sorted(pulled)[APART[-1] :: EVERY]:
        new = pulled[version]
        for apart in (0, *APART):
            if apart and version - apart not in pulled:
                continue
            began = time.perf_counter()
            sent = Base(pulled[version - apart], len(new) // 2).delta_to(new) if apart else zlib.compress(new, LEVEL)
            took = 1000 * (time.perf_counter() - began)
            found[apart].append((len(new) / len(sent), took))
    return found


def observe(preset: str, seconds: float, flags: list[str]) -> None:
    scripts = Path(sys.executable).parent
    with serving([str(scripts / "rl-cluster"), "--preset", preset, "--workers", "2", *flags]) as (server, _):
        pulled = dict(versions(server, seconds))
    size = len(next(iter(pulled.values()))) // 2
    table = Table(f"{preset}: {size:,} parameters", "alone", *(f"{apart} apart" for apart in APART), "ms")
    found = measure(pulled)
    savings = [found[apart] for apart in (0, *APART)]
    cells = [f"{statistics.median(one for one, _ in each):.2f}" if each else "–" for each in savings]
    took = statistics.median(ms for each in savings[1:] for _, ms in each)
    table.add_row(f"versions {min(pulled)} to {max(pulled)}", *cells, f"{took:.2f}")
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="what lossless deltas of weights save")
    parser.add_argument("--presets", nargs="+", default=["cartpole-a3c", "pong-a3c"])
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments, flags = parser.parse_known_args()
    for preset in arguments.presets:
        observe(preset, arguments.seconds, flags)


if __name__ == "__main__":
    main()
