"""The page of runs: a client of the protocol and a reader of run folders."""
