"""What the environment of a policy shows, without the environment."""
