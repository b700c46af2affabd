"""
Seconds from the command to the first applied push, and memory (PSS) by part after a while: `python -m
benchmarks.footprint [SECONDS [CHECKOUT …]]`. Each checkout is measured in turn, as `rl-cluster --preset pong` with two
workers. PSS counts a page that n processes map as 1/n in each.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil

from ps_common.errors import PsRlError
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT
from ps_common.sockets.request import status_of

RUN = ["--preset", "pong", "--workers", "2", "--until-return", "None"]
MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$")


def part_of(name: str) -> str:
    """What a mapping of /proc/PID/smaps is called in the table."""
    if "memfd:ps-rl" in name:
        return "segments"
    return "files" if name.startswith("/") else "heap" if name == "[heap]" else "anonymous"


def parts_of(process: psutil.Process) -> dict[str, float]:
    """MiB of PSS by part."""
    parts: dict[str, float] = defaultdict(float)
    for line in Path(f"/proc/{process.pid}/smaps").read_text(encoding="utf-8").splitlines():
        if mapping := MAPPING.match(line):
            part = part_of(mapping[1])
        elif line.startswith("Pss:"):
            parts[part] += int(line.split()[1]) / 1024
    return parts


def measure(checkout: Path, seconds: float) -> None:
    """One run of this checkout: prints a line for its start, and one for each process."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "PYTHONPATH": f"{checkout}:{checkout / 'common'}"}
        began = time.monotonic()
        command = [sys.executable, "-P", "-m", "rl_cluster", *RUN, "--run-dir", folder]
        cluster = subprocess.Popen(command, env=variables, cwd=folder, stdout=subprocess.DEVNULL)
        try:
            while not _has_update(Path(folder)):
                assert cluster.poll() is None, "rl-cluster has failed"
                time.sleep(0.02)
            print(f"{checkout}: first applied push after {time.monotonic() - began:.1f} s", flush=True)
            time.sleep(seconds)
            if seconds:
                whole = psutil.Process(cluster.pid)
                show([(one.name(), parts_of(one)) for one in [whole, *whole.children(recursive=True)]])
        finally:
            cluster.terminate()
            cluster.wait()


def _has_update(folder: Path) -> bool:
    address = read_endpoint(folder / ENDPOINT)
    try:
        return bool(address) and status_of(address, timeout_seconds=1).status.updates > 0
    except PsRlError:
        return False


def show(processes: list[tuple[str, dict[str, float]]]) -> None:
    names = {name for _, parts in processes for name in parts}
    total = {name: sum(parts.get(name, 0.0) for _, parts in processes) for name in names}
    for process, parts in [*processes, ("all", total)]:
        columns = "  ".join(f"{name} {mib:.0f}" for name, mib in sorted(parts.items()))
        print(f"  {process:<16} {sum(parts.values()):6.0f} MiB:  {columns}", flush=True)


if __name__ == "__main__":
    after, *checkouts = sys.argv[1:] or ["60"]
    for where in checkouts or [str(Path(__file__).parents[1])]:
        measure(Path(where), float(after))
