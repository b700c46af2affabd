"""Playing without learning: evaluation, recordings and the window."""
