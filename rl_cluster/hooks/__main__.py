"""`python -m rl_cluster.hooks RUN_DIR MODULE:NAME …`: the hooks of a run's checkpoints. rl-cluster starts it."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("rl_cluster.hooks.cli")


if __name__ == "__main__":
    main()
