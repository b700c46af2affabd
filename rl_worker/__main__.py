"""Where the programs `rl-worker`, which is `python -m rl_worker` too, `rl-cluster` and `rl-eval` start."""

import os
import sys
from typing import NoReturn

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> NoReturn:
    _start("rl_worker.cli")


def cluster() -> NoReturn:
    _start("rl_worker.local.cluster")


def evaluate() -> NoReturn:
    _start("rl_worker.play.evaluation")


def check() -> NoReturn:
    """What rl-cluster has done before it starts anything."""
    _start("rl_worker.local.run_check")


def _start(module: str) -> NoReturn:
    sys.path.insert(0, OURS)
    import common  # noqa: F401  (the one beside this package, whatever else has its name)

    del sys.path[0]
    from common.program.start import start

    start(module)


if __name__ == "__main__":
    main()
