"""`python -m rl_cluster.hooks RUN_DIR MODULE:NAME …`: the hooks of a run's checkpoints. rl-cluster starts it."""

from ps_common.program.start import start

if __name__ == "__main__":
    start("rl_cluster.hooks.cli", "follow")
