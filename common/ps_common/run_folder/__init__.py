"""The folder of a run: its files, their rows, its lock and its checkpoints."""
