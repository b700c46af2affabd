"""`python -m rl_cluster.on_ray`: a run on a Ray cluster."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("rl_cluster.on_ray.cli")


if __name__ == "__main__":
    main()
