"""The records of a run: metrics, episodes, event files and plots."""
