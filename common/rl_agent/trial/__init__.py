"""Custom hooks: what is called when a game ends, and when a checkpoint is there."""
