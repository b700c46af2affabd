"""`python -m rl_worker` is `rl-worker`."""

from rl_worker.cli import main

main()
