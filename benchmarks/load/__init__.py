"""`python -m benchmarks.load`: synthetic workers put load on a server, and report how it bears that."""
