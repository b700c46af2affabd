"""The parameter server: holds the weights, applies gradients, remembers what it applied."""
