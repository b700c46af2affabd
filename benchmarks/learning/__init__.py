"""How soon presets learn, with several seeds, games, numbers of workers and ages of gradients; published scores."""
