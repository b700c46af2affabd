"""`python -m rl_agent.trial`: a trial of what a run needs, in a process of its own. rl-cluster starts it."""

from typing import NoReturn

from ps_common.program.start import start


def main() -> NoReturn:
    start("rl_agent.trial.run_check")


if __name__ == "__main__":
    main()
