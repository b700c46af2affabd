"""What a worker remembers of its steps, to learn from them more than once."""
