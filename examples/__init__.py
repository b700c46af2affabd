"""Custom parts, one file a kind: copy one, and name it by its import path. docs/how-to explains each."""
