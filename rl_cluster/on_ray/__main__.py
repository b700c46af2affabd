"""`python -m rl_cluster.on_ray`: a run on a Ray cluster."""

from rl_worker.__main__ import _start

if __name__ == "__main__":
    _start("rl_cluster.on_ray.cli")
