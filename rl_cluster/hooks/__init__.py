"""The functions of a user that a run calls at its checkpoints."""
