"""A link between two programs on loopback that can be slow, or cut: one TCP connection into another, byte by byte."""

import contextlib
import socket
import threading

CHUNK_BYTES = 16 * 1024
BUFFER_BYTES = 64 * 1024  # in the kernel: a slow link must not look fast for long


class SlowLink:
    """Listens on `endpoint`, passes on to `target`. What `target` sends goes at `bytes_per_second`; None: no limit."""

    def __init__(self, target: str) -> None:
        self.bytes_per_second: float | None = None
        self._target = target
        self._is_cut = False
        self._over = threading.Event()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def cut(self) -> None:
        """Cut it: connections break, and new ones come to nothing until `mend`."""
        self._is_cut = True
        self._break(self._sockets)

    def mend(self) -> None:
        self._is_cut = False

    def close(self) -> None:
        self._over.set()
        self._break([self._listener, *self._sockets])
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    @staticmethod
    def _break(sockets: list[socket.socket]) -> None:
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _start(self, *what: object) -> None:
        thread = threading.Thread(target=what[0], args=what[1:], name="slow link", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        host, _, port = self._target.rpartition(":")
        while not self._over.is_set():
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._is_cut:
                near.close()
                continue
            far = socket.socket()
            self._sockets += [near, far]
            try:
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
                near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
                far.connect((host, int(port)))
            except OSError:
                self._break([near, far])
                continue
            if self._over.is_set():  # `close` may have looked before these were there
                self._break([near, far])
                return
            self._start(self._pump, far, near, True)
            self._start(self._pump, near, far, False)

    def _pump(self, source: socket.socket, sink: socket.socket, is_slow: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                sink.sendall(data)
                rate = self.bytes_per_second
                if is_slow and rate is not None and self._over.wait(len(data) / rate):
                    return
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
