"""One file an algorithm, each read top to bottom: how it acts, and the loss whose gradient it pushes."""
