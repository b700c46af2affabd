"""
Lossless deltas of weights, tried on real runs: `python -m benchmarks.deltas [--presets cartpole-a3c pong-a3c]`.

While two workers train, an observer pulls every version that it can. Two versions that are so many updates apart are
combined by XOR, their bytes grouped by significance (all highest bytes, then all second ones, …), and compressed by
zstd: once as float32, once as the bfloat16 in which they could travel. "whole" compresses one version alone. A saving
is the bytes without compression over the bytes with it, a median; times are of one core. Needs the package zstandard.
"""

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import zmq
import zstandard
from rich.console import Console
from rich.table import Table

from benchmarks.servers import serving
from common.protocol import messages
from common.protocol.codecs import CODECS
from common.protocol.wire import read_to_worker, to_frames
from common.sockets.zmq_sockets import connect, dealer, receive_frames

APART = (1, 4, 16, 64)  # updates between the two versions
EVERY = 40  # versions between two measurements
LEVEL = 1  # of zstd: on these bytes level 3 saves no more, and takes longer
PATIENCE_MILLISECONDS = 60_000


def versions(server: str, seconds: float) -> Iterator[tuple[int, np.ndarray]]:
    """Versions of the run and their weights [P] as float32, for so long from the first update on."""
    with zmq.Context() as context, dealer(context, None) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        connect(socket, server)
        have, request, end = (0, 0), 0, 0.0
        while not end or time.monotonic() < end:
            request += 1
            socket.send_multipart(to_frames(messages.Pull(request=request, have_epoch=have[0], have_version=have[1])))
            assert socket.poll(PATIENCE_MILLISECONDS), f"{server} does not reply"
            reply, vector = read_to_worker([frame.buffer for frame in receive_frames(socket)])
            if isinstance(reply, messages.Weights):
                have = (reply.epoch, reply.version)
                end = end or time.monotonic() + seconds
                size = sum(memoryview(part).nbytes for part in vector) // 4
                yield reply.version, CODECS["float32"].decode(vector, size).numpy().copy()
            else:
                time.sleep(0.001)


def encoded(weights: np.ndarray, codec: str) -> np.ndarray:
    """The bytes that travel, as integers of the width of an element."""
    kind = np.uint32 if codec == "float32" else np.uint16
    return np.frombuffer(bytes(CODECS[codec].encode(torch.from_numpy(weights))), dtype=kind)


def compressed(bits: np.ndarray) -> bytes:
    grouped = bits.view(np.uint8).reshape(len(bits), -1).T.copy()
    return zstandard.ZstdCompressor(level=LEVEL).compress(grouped.tobytes())


def measure(pulled: dict[int, np.ndarray]) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """(saving, milliseconds of XOR and zstd) by codec and updates apart; 0 apart: one version alone."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for version in sorted(pulled)[APART[-1] :: EVERY]:
        for codec in ("float32", "bfloat16"):
            new = encoded(pulled[version], codec)
            for apart in (0, *APART):
                if apart and version - apart not in pulled:
                    continue
                old = encoded(pulled[version - apart], codec) if apart else np.zeros_like(new)
                began = time.perf_counter()
                sent = compressed(new ^ old)
                took = 1000 * (time.perf_counter() - began)
                found[codec, apart].append((new.nbytes / len(sent), took))
    return found


def observe(preset: str, seconds: float, flags: list[str]) -> None:
    scripts = Path(sys.executable).parent
    with serving([str(scripts / "rl-cluster"), "--preset", preset, "--workers", "2", *flags]) as (server, _):
        pulled = dict(versions(server, seconds))
    size = len(next(iter(pulled.values())))
    table = Table(f"{preset}: {size:,} parameters", "whole", *(f"{apart} apart" for apart in APART), "ms")
    found = measure(pulled)
    for codec in ("float32", "bfloat16"):
        savings = [found[codec, apart] for apart in (0, *APART)]
        cells = [f"{statistics.median(one for one, _ in each):.2f}" if each else "–" for each in savings]
        took = statistics.median(ms for each in savings for _, ms in each)
        table.add_row(f"{codec}, versions {min(pulled)} to {max(pulled)}", *cells, f"{took:.2f}")
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="what lossless deltas of weights would save")
    parser.add_argument("--presets", nargs="+", default=["cartpole-a3c", "pong-a3c"])
    parser.add_argument("--seconds", type=float, default=60.0)
    arguments, flags = parser.parse_known_args()
    for preset in arguments.presets:
        observe(preset, arguments.seconds, flags)


if __name__ == "__main__":
    main()
