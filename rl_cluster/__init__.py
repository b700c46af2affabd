"""A server and workers on this machine, or workers for a server elsewhere; `on_ray` has a run on a Ray cluster."""
