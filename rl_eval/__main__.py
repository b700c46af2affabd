"""`rl-eval`, also `python -m rl_eval`."""

from functools import partial

from ps_common.program.start import start

main = partial(start, "rl_eval.cli", "evaluate")

if __name__ == "__main__":
    main()
