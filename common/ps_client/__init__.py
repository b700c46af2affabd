"""A client of the server for anything that has parameters. It knows no game."""
