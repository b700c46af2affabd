"""
A link between two programs on loopback that can be slow, far, or cut: a TCP relay that delays every byte, sends no
faster than its rate in either direction, and counts. It needs neither root nor modules of the kernel. (What TCP itself
does on a far link, it does not.)
"""

import contextlib
import queue
import socket
import threading
import time

CHUNK_BYTES = 4 * 1024
BUFFER_BYTES = 32 * 1024  # of the kernel: what is sent must wait at the link, and not in the program's socket
QUEUED_CHUNKS = 32  # beyond that the sender waits, as before a full router

Waiting = queue.Queue[tuple[float, bytes]]  # when they arrive at the other end, and the bytes; b"": no more


class Direction:
    """One direction of a link: all its connections share the rate."""

    def __init__(self, delay_seconds: float) -> None:
        self.bytes = 0
        self.bytes_per_second: float | None = None  # None: no limit
        self._delay = delay_seconds
        self._free = 0.0  # when the last byte so far has left
        self._lock = threading.Lock()

    def arrival(self, count: int) -> float:
        """When so many bytes, sent now, arrive at the other end."""
        with self._lock:
            self.bytes += count
            seconds = count / self.bytes_per_second if self.bytes_per_second else 0.0
            self._free = max(self._free, time.monotonic()) + seconds
            return self._free + self._delay


class SlowLink:
    """Listens on `endpoint`, passes on to `target`, HOST:PORT. A direction without a rate has no limit."""

    def __init__(self, target: str, *, megabits: float | None = None, round_trip_seconds: float = 0.0) -> None:
        self.up, self.down = (Direction(round_trip_seconds / 2) for _ in range(2))
        self.up.bytes_per_second = self.down.bytes_per_second = megabits and megabits * 125_000
        self._target = target
        self._is_cut = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def cut(self) -> None:
        """Cut it: connections break, and new ones come to nothing until `mend`."""
        self._is_cut = True
        self._break(self._sockets)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        """Cut it for good; the threads end with the connections."""
        self._is_cut = True
        self._break([self._listener, *self._sockets])

    @staticmethod
    def _break(sockets: list[socket.socket]) -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    @staticmethod
    def _start(*what: object) -> None:
        threading.Thread(target=what[0], args=what[1:], name="slow link", daemon=True).start()  # type: ignore[arg-type]

    def _accept(self) -> None:
        host, _, port = self._target.rpartition(":")
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.socket()
            self._sockets += [near, far]
            try:
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
                far.connect((host, int(port)))
            except OSError:
                self._break([near, far])
                continue
            if self._is_cut:  # also where `cut` or `close` looked before these were there
                self._break([near, far])
                continue
            for source, sink, direction in ((near, far, self.up), (far, near, self.down)):
                waiting = Waiting(QUEUED_CHUNKS)
                self._start(self._read, source, direction, waiting)
                self._start(self._write, sink, waiting)

    def _read(self, source: socket.socket, direction: Direction, waiting: Waiting) -> None:
        data = b"-"
        while data:
            try:
                data = source.recv(CHUNK_BYTES)
            except OSError:
                data = b""
            waiting.put((direction.arrival(len(data)), data))

    def _write(self, sink: socket.socket, waiting: Waiting) -> None:
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
