"""Where a run is kept: its folders, locked against other servers, its checkpoints, and an object store."""
