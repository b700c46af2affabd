"""Where a run is kept: its folders, locked against other servers, and an object store."""
