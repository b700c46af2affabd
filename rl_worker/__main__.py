"""`rl-worker`, also `python -m rl_worker`."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("rl_worker.cli", leaves_in_order=True)


if __name__ == "__main__":
    main()
