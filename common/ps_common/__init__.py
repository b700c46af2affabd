"""The contract between programs: protocol, settings, run folder, sockets, and how a program starts and ends."""
