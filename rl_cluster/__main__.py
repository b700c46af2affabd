"""`rl-cluster`, also `python -m rl_cluster`."""

from functools import partial

from ps_common.program.start import start

main = partial(start, "rl_cluster.cli", "train_here")

if __name__ == "__main__":
    main()
