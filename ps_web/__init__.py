"""The page of a run: a client of the protocol and a reader of run folders. Imports `common` alone."""
