"""The worker's socket, threads and shared memory."""
