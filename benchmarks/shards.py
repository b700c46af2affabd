"""
`python -m benchmarks.shards`: round trips a second (push a gradient, apply RMSProp, pull the weights) of one worker
with one server, and with several shards on the same machine, in turn: SIZES=1700000,10000000 SHARDS=4 SECONDS=5 TURNS=3

On a machine with fewer cores than shards this is the price of shards, not their gain.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from ps_client.shell.shard_connections import ShardConnections
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.run_folder.paths import ENDPOINT, shard_folder
from ps_common.settings.run_spec import Wire
from rl_cluster.addresses import shard_addresses

START_SECONDS = 120.0
RESEND_BYTES = 2**28


@contextmanager
def servers(shards: int) -> Iterator[str]:
    """The address of one of so many servers of a run."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        addresses = shard_addresses("127.0.0.1", 0, shards)
        for number, address in enumerate(addresses, 1):
            port = address.rpartition(":")[2]
            place = ["--shard", f"{number}/{shards}", "--shards", *addresses] if shards > 1 else []
            flags = ["--host", "127.0.0.1", "--port", port, "--run-dir", name, "--checkpoint-seconds", "600", *place]
            server = subprocess.Popen([sys.executable, "-m", "ps_server", *flags], stdout=subprocess.DEVNULL)
            stack.callback(server.wait)
            stack.callback(server.kill)
        paths = [shard_folder(Path(name), number, shards) / ENDPOINT for number in range(1, shards + 1)]
        end = time.monotonic() + START_SECONDS
        while not all(path.exists() for path in paths):
            assert time.monotonic() < end, "a server did not start"
            time.sleep(0.1)
        yield addresses[0]


def round_trips(server: str, size: int, seconds: float) -> float:
    """Round trips a second of one worker with a vector of this size."""
    connections = ShardConnections("bench", server, proposed_run={}, patience_seconds=60, resend_mib=256)
    connections.join()
    parameters = connections.parameters(Schema([TensorSpec("all", (size,))]), Wire())
    parameters.seed(torch.zeros(size))
    newest, count, begun = parameters.pull(), 0, time.monotonic()
    while time.monotonic() - begun < seconds:
        newest = parameters.push_pull(torch.full((size,), 1e-3), computed_on=newest, steps=1)
        count += 1
    rate = count / (time.monotonic() - begun)
    connections.close()
    return rate


def main() -> None:
    torch.set_num_threads(1)
    sizes = [int(size) for size in os.environ.get("SIZES", "1700000,10000000").split(",")]
    shards, turns = int(os.environ.get("SHARDS", "4")), int(os.environ.get("TURNS", "3"))
    seconds = float(os.environ.get("SECONDS", "5"))
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for size in sizes:
        rates: dict[int, list[float]] = {1: [], shards: []}
        for _ in range(turns):
            for count, measured in rates.items():
                with servers(count) as server:
                    measured.append(round_trips(server, size, seconds))
        one, several = (statistics.median(rates[count]) for count in (1, shards))
        print(
            f"{size:,} parameters: {one:.1f}/s, {several:.1f}/s with {shards} shards: {several / one:.2f}", flush=True
        )


if __name__ == "__main__":
    main()
