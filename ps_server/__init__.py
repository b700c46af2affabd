"""
The parameter server: holds the weights, applies gradients, remembers which ones it applied.

Its folders import downwards alone:

    cli, serving, starting   the flags, and the parts that they ask for
    shell, records           sockets, threads, files; each effect of the machine is carried out here
    standby   storage        the machine that follows a server; the folders and the object store of a run
    machine                  messages in, effects out
    replication              the run as other servers have it: the standby, the shards after the first
    state                    what a push changes and a checkpoint keeps; the effects

standby, machine, replication and state are pure: no sockets, files, clocks, threads, randomness or logging.
"""
