"""
The contract between programs, and how a program starts and ends. Its folders:

    protocol     messages, tensors, codecs and names. Pure: no sockets, files or clocks
    settings     the settings of a run, their limits and presets
    run_folder   the folder of a run: its files, their rows, its lock and its checkpoints
    sockets      ZeroMQ sockets and shared memory, as both sides use them
    program      the needs of every program: flags, output, logs and signals
"""
