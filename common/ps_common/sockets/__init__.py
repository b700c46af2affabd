"""ZeroMQ sockets and shared memory, as both sides use them."""
