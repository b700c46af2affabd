"""`ps-bench`, also `python -m ps_bench`."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("ps_bench.cli")


if __name__ == "__main__":
    main()
