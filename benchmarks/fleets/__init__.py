"""Fleets that are too large to measure: a model of them, and the measured times that it is fitted to."""
