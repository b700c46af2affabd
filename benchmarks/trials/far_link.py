"""
A far and slow link, for programs on loopback: a TCP relay that delays every byte, sends no faster than its rate in
either direction, and counts. It needs neither root nor modules of the kernel. (What TCP itself does on a far link, it
does not.)
"""

import contextlib
import queue
import socket
import threading
import time

CHUNK_BYTES = 4 * 1024
BUFFER_BYTES = 32 * 1024  # of the kernel: what is sent must wait at the link, and not in the program's socket
QUEUED_CHUNKS = 64  # beyond that the sender waits, as before a full router


class _Direction:
    """One direction of a link: all its connections share the rate."""

    def __init__(self, bytes_per_second: float, delay_seconds: float) -> None:
        self.bytes = 0
        self._rate = bytes_per_second
        self._delay = delay_seconds
        self._free = 0.0  # when the last byte so far has left
        self._lock = threading.Lock()

    def arrival(self, count: int) -> float:
        """When so many bytes, sent now, arrive at the other end."""
        with self._lock:
            self.bytes += count
            self._free = max(self._free, time.monotonic()) + count / self._rate
            return self._free + self._delay


class FarLink:
    """Listens on `endpoint`, passes on to `target`, HOST:PORT."""

    def __init__(self, target: str, *, megabits: float, round_trip_seconds: float) -> None:
        self._target = target
        self._up, self._down = (_Direction(megabits * 125_000, round_trip_seconds / 2) for _ in range(2))
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    @property
    def carried(self) -> tuple[int, int]:
        """Bytes to the target, and from it."""
        return self._up.bytes, self._down.bytes

    def close(self) -> None:
        """Cut all connections; the threads end with them."""
        for each in [self._listener, *self._sockets]:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _start(self, *what: object) -> None:
        threading.Thread(target=what[0], args=what[1:], name="far link", daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        host, _, port = self._target.rpartition(":")
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket()
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
            try:
                far.connect((host, int(port)))
            except OSError:
                near.close()
                far.close()
                continue
            self._sockets += [near, far]
            self._pump(near, far, self._up)
            self._pump(far, near, self._down)

    def _pump(self, source: socket.socket, sink: socket.socket, direction: _Direction) -> None:
        waiting: queue.Queue[tuple[float, bytes]] = queue.Queue(QUEUED_CHUNKS)
        self._start(self._read, source, direction, waiting)
        self._start(self._write, sink, waiting)

    def _read(self, source: socket.socket, direction: _Direction, waiting: "queue.Queue[tuple[float, bytes]]") -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(CHUNK_BYTES)
            except OSError:
                data = b""
            waiting.put((direction.arrival(len(data)), data))

    def _write(self, sink: socket.socket, waiting: "queue.Queue[tuple[float, bytes]]") -> None:
        data = b"-"
        with contextlib.suppress(OSError):
            while data:
                due, data = waiting.get()
                time.sleep(max(0.0, due - time.monotonic()))
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        while data:  # the other end is gone: what is still on its way is lost
            data = waiting.get()[1]
