"""`make scale`: what this machine gives, and the command that uses it."""
