"""ps-bench: synthetic workers put load on a server, and report how it bears that."""
