"""A server and its workers as child processes on this machine."""
