"""How soon presets learn: runs with several seeds, runs of many games, and what others published."""
