"""Games of any simulator in any language: simulators connect to a port, and play what a run asks them to."""

from examples.remote_simulator.games import serve

__all__ = ["serve"]
