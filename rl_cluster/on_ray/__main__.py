"""`python -m rl_cluster.on_ray`: a run on a Ray cluster."""

from ps_common.program.start import start

if __name__ == "__main__":
    start("rl_cluster.on_ray.cli", "train_on_ray")
