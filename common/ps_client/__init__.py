"""
A client of the server for anything that has parameters. It knows no game. Its folders:

    machine   the worker's side of the protocol as decisions. Pure: `now` is an argument
    shell     the worker's socket, threads and shared memory
"""
