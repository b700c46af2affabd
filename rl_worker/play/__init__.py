"""Playing without learning: evaluation, films and the window."""
