"""
`make load`: a thousand synthetic workers join one server and push, and their limits hold.

WORKERS, PUSH_SECONDS and PARAMETERS are set by the environment. Exits with a status other than 0 when workers were
refused, joined too slowly, were served unequally, or made the server's memory grow beyond the formula of
docs/GUARANTEES.md.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from ps_bench.results import LoadResult
from tests.integration.processes import programs_in

WORKERS = int(os.environ.get("WORKERS", "1000"))
SECONDS = float(os.environ.get("PUSH_SECONDS", "30"))
PARAMETERS = int(os.environ.get("PARAMETERS", "150000"))
JOIN_SECONDS = 15.0
LEAST_FAIRNESS = 0.95


def broken(result: LoadResult) -> list[str]:
    """The limits that this test has broken."""
    ready, memory = result.ready_seconds.longest, result.memory
    limits = {
        result.failure: not result.failure,
        f"the last worker had weights after {ready} s": ready is not None and ready <= JOIN_SECONDS,
        f"fairness is {result.fairness:.3f}": result.fairness >= LEAST_FAIRNESS,
        f"memory grew by {memory.pushing - memory.before}": memory.pushing - memory.before <= memory.most_growth,
    }
    return [what for what, holds in limits.items() if not holds]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, programs_in(Path(folder)) as programs:
        _, endpoint = programs.start_server()
        flags = ["--workers", str(WORKERS), "--seconds", str(SECONDS), "--parameters", str(PARAMETERS)]
        bench = [sys.executable, "-m", "ps_bench"]
        tested = subprocess.run(
            [*bench, "load", "--server", endpoint, *flags, "--json"], stdout=subprocess.PIPE, check=False
        )
        if not tested.stdout:
            return 1
    result = msgspec.json.decode(tested.stdout, type=LoadResult)
    failures = broken(result)
    print(
        f"workers={result.joined} join_longest={result.ready_seconds.longest or 0:.1f}s "
        f"pushes_per_second={result.pushes_per_second:.0f} fairness={result.fairness:.4f} "
        f"growth_mib={(result.memory.pushing - result.memory.before) / 2**20:.0f} "
        f"of_mib={result.memory.most_growth / 2**20:.0f}",
        *[f"BROKEN: {failure}" for failure in failures],
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
