"""The parameter server: holds the weights, applies gradients, remembers which ones it applied."""
