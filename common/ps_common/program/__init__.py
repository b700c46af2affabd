"""The needs of every program: flags, output, logs and signals."""
