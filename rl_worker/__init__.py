"""The worker: pulls weights, collects unrolls, learns from them, pushes gradients."""
