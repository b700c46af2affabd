"""Looks at runs and steers them from a terminal."""
