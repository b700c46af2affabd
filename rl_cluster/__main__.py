"""`python -m rl_cluster` is rl-cluster."""

from rl_worker.__main__ import cluster

if __name__ == "__main__":
    cluster()
