"""The worker: steps environments, computes gradients, sends them to the server."""
