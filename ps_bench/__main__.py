"""`ps-bench`, also `python -m ps_bench`."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("ps_bench.cli")


def load_process() -> NoReturn:
    """One of the processes that ps-bench starts."""
    start("ps_bench.process")


if __name__ == "__main__":
    main()
