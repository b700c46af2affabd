"""The server's sockets, files and threads. The shell carries out the machine's effects."""
