"""A server and workers on this machine, or workers for a server elsewhere."""
