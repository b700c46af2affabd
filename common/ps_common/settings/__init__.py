"""The settings of a run, their limits and presets."""
