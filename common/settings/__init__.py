"""What a run is: its settings, their limits and their presets."""
