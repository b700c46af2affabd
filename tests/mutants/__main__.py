"""
How much the tests see: one place of the product is changed at a time, and a test has to fail. `make mutants` draws
places by a seed, asks the tests that call the changed function, and names the changes that no test notices.
"""

import argparse
import json
import os
import random
import sys
import time
from pathlib import Path

import pytest

from tests.mutants.judge import Judge
from tests.mutants.places import ROOT, Place, places_of

PURE = (  # what decides without sockets, files and clocks, and what learns
    "ps_server/machine", "ps_server/state", "ps_server/replication", "ps_server/standby", "common/ps_client/machine",
    "common/ps_common/protocol", "common/ps_common/settings", "common/rl_agent/algorithms", "common/rl_agent/networks",
    "common/rl_agent/environments", "common/rl_agent/replay",
)  # fmt: skip


def drawn(parts: list[str], count: int, seed: int) -> tuple[list[Place], int]:
    """So many places of these files and folders, and how many there are."""
    paths = [
        path for part in parts for path in ([ROOT / part] if part.endswith(".py") else (ROOT / part).rglob("*.py"))
    ]
    every = [place for path in sorted(paths) for place in places_of(str(path.relative_to(ROOT)))]
    return random.Random(seed).sample(every, min(count, len(every))), len(every)


def main() -> None:
    parser = argparse.ArgumentParser(prog="make mutants")
    parser.add_argument("parts", nargs="*", default=PURE, help="files or folders of the product")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="those that are asked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--killers", type=Path, help="a file for the names of all tests that notice each change")
    given = parser.parse_args()
    places, count = drawn(given.parts, given.places, given.seed)
    judge = Judge(places, processes=given.processes, all_killers=given.killers is not None)
    begun = time.monotonic()
    flags = ["-q", "--timeout", "0", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(ROOT)]
    status = pytest.main([*flags, *(str(ROOT / path) for path in given.tests)], plugins=[judge])
    noticed = sum(bool(killers) for killers in judge.killers.values())
    minutes = (time.monotonic() - begun) / 60
    print(
        f"seed {given.seed}: {noticed} of {len(judge.killers)} changes are noticed, {len(places)} were drawn of {count}"
    )
    print(f"{noticed / max(1, len(judge.killers)):.2f} in {minutes:.0f} minutes")
    if given.killers:
        told = [[str(place), judge.asked[place], judge.killers[place]] for place in judge.killers]
        given.killers.write_text(json.dumps({"places": told, "seconds": judge.seconds}))
    sys.exit(0 if judge.killers else status)


if __name__ == "__main__":
    main()
