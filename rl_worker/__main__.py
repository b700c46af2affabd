"""Entry points of `rl-worker` (also `python -m rl_worker`), `rl-cluster`, `rl-eval` and `ps-bench`."""

import os
import sys
from typing import NoReturn

PACKAGES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main() -> NoReturn:
    _start("rl_worker.cli", leaves_in_order=True)


def cluster() -> NoReturn:
    _start("rl_cluster.cli")


def evaluate() -> NoReturn:
    _start("rl_eval.cli")


def bench() -> NoReturn:
    _start("ps_bench.cli")


def load_process() -> NoReturn:
    """One of the processes that ps-bench starts."""
    _start("ps_bench.process")


def check() -> NoReturn:
    """The check that rl-cluster runs in a separate process before it starts anything."""
    _start("rl_agent.trial.run_check")


def _start(module: str, *, leaves_in_order: bool = False) -> NoReturn:
    sys.path.insert(0, PACKAGES)
    import common  # noqa: F401  (the one beside this package, not another one of this name)

    del sys.path[0]
    from ps_common.program.start import start

    start(module, leaves_in_order=leaves_in_order)


if __name__ == "__main__":
    main()
