"""Scores of full games, receipts, films, and policies to take away."""
