"""
`make load`: a thousand synthetic workers join one server and push, and their limits hold.

Run it as a module, with sizes in the environment: WORKERS=, PUSH_SECONDS=, PARAMETERS=. Exits with a status other than
0 when workers were refused, joined too slowly, were served unequally, or made the server's memory grow beyond the
formula of docs/GUARANTEES.md.
"""

import subprocess
import sys

import msgspec

from benchmarks.trials.frame import programs_of_a_trial, report, sizes
from ps_bench.results import LoadResult

JOIN_SECONDS = 15.0
LEAST_FAIRNESS = 0.95


def trial(*, workers: int, push_seconds: int, parameters: int) -> LoadResult | None:
    """What ps-bench found; None if it failed."""
    with programs_of_a_trial() as programs:
        _, endpoint = programs.start_server()
        sizes = ["--workers", str(workers), "--seconds", str(push_seconds), "--parameters", str(parameters)]
        bench = [sys.executable, "-m", "ps_bench", "load", "--server", endpoint, *sizes, "--json"]
        printed = subprocess.run(bench, stdout=subprocess.PIPE, check=False).stdout
    return msgspec.json.decode(printed, type=LoadResult) if printed else None


def main() -> int:
    found = trial(**sizes(workers=1000, push_seconds=30, parameters=150_000))
    if found is None:
        return 1
    longest, growth = found.ready_seconds.longest, found.memory.pushing - found.memory.before
    return report(
        {
            "workers": found.joined,
            "join_seconds": longest or 0.0,
            "pushes_per_second": found.pushes_per_second,
            "fairness": found.fairness,
            "growth_mib": growth / 2**20,
            "of_mib": found.memory.most_growth / 2**20,
        },
        {
            found.failure: bool(found.failure),
            f"the last worker has weights within {JOIN_SECONDS:g} s": longest is None or longest > JOIN_SECONDS,
            f"fairness is at least {LEAST_FAIRNESS}": found.fairness < LEAST_FAIRNESS,
            "memory grows by no more than the formula": growth > found.memory.most_growth,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
