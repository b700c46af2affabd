"""
A server and workers on this machine, or workers for a server elsewhere. Its folders:

    hooks      the process that calls the hooks of a run's checkpoints
    on_ray     a run on a Ray cluster
"""
