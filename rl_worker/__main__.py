"""`rl-worker`, also `python -m rl_worker`."""

from functools import partial

from ps_common.program.start import start

main = partial(start, "rl_worker.cli", "work", leaves_in_order=True)

if __name__ == "__main__":
    main()
