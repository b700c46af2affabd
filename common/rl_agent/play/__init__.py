"""Full games for scores."""
