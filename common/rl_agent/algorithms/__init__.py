"""One file per algorithm, to be read top to bottom: how it acts, and the loss whose gradient it pushes."""
