"""`rl-cluster`, also `python -m rl_cluster`."""

from functools import partial

from ps_common.program.start import start

FORKS = {
    "rl_cluster.trial": ("rl_agent.trial.agent_check", "rl_agent.environments.any_gymnasium"),
    "ps_server": ("ps_server.cli", "ps_server.serving"),
    "rl_worker": ("rl_worker.cli", "rl_worker.joining"),
    "rl_eval": (),  # what the others import is what it needs
}

main = partial(start, "rl_cluster.cli", "train_here", forks=FORKS)

if __name__ == "__main__":
    main()
