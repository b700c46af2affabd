"""`rl-cluster`, also `python -m rl_cluster`."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("rl_cluster.cli")


if __name__ == "__main__":
    main()
