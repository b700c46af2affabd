"""Scores: what they are compared with, and in which words they are told."""
