"""Environments in lockstep behind one interface."""
