"""Scores of full games, receipts, and policies to take away."""
