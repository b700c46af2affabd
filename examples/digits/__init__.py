"""Handwritten digits, learnt through a plain ps-server."""
