"""`rl-eval`, also `python -m rl_eval`."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("rl_eval.cli")


if __name__ == "__main__":
    main()
