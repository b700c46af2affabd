"""`python -m rl_cluster.hooks RUN_DIR MODULE:NAME …`: the hooks of a run's checkpoints. rl-cluster starts it."""

import os
import sys

PACKAGES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

if __name__ == "__main__":
    sys.path.insert(0, PACKAGES)
    import common  # noqa: F401  (the one beside this package, not another one of this name)

    del sys.path[0]
    from ps_common.program.start import start

    start("rl_cluster.hooks.cli")
