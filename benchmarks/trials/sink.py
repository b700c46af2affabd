"""
A socket that receives everything and never replies: the baseline for the load of fuzzing clients.

Run it as a module: sink ENDPOINT; its HOST:PORT is written to that file.
"""

import sys
from pathlib import Path

import zmq


def main(endpoint: Path) -> None:
    socket = zmq.Context().socket(zmq.ROUTER)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    endpoint.write_text(f"127.0.0.1:{port}")
    while True:
        socket.recv_multipart(copy=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
