"""Trials of the guarantees with real processes, for minutes to hours: `make chaos` and others."""
