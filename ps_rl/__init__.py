"""The Python interface of ps-rl: what `rl_worker` exports."""
