"""
Memory that a worker and a server of one host share, so that vectors need not go through the network.

A segment is a memory file (memfd) that a worker makes for one connection. Its first page begins with a random secret
and a random proof; slots follow, as many as the worker reserves. HELLO names the worker's process, its descriptor and
the secret. The server opens that file, checks the secret, and repeats the proof in WELCOME, which shows that it maps
the same memory. A peer that does not know the secret cannot have a file opened. segment_slots.py and mapped_segments.py
decide what lies where, and which side may write when.

Nothing stays behind: the file has no name, and ends with the last process that has it open.
Nothing faults: a seal keeps the file from being shortened, and space is reserved before it is used.
"""

import fcntl
import hmac
import mmap
import os
import re
import secrets
import stat
import sys

import numpy as np

from ps_common.errors import WireError

FOLDER = "/proc"  # where a process can open the files of another one of its user
LABEL = "ps-rl"  # the name of the file among those that a process has open
NAME = re.compile(r"ps-rl-([1-9][0-9]{0,9})-([0-9]{1,7})-([0-9a-f]{32})")  # process, descriptor, secret
SECRET_BYTES = 32
PAGE_BYTES = 4096
MOST_BYTES = 2**34

Bytes = np.ndarray  # of uint8


class Segment:
    """One open memory file. An array of it keeps that part mapped."""

    def __init__(self, descriptor: int, name: str, proof: str) -> None:
        """Use `make` or `open`."""
        self.name = name
        self.proof = proof
        self._descriptor = descriptor
        self._bytes = np.empty(0, dtype=np.uint8)  # what is mapped

    @classmethod
    def make(cls) -> "Segment":
        """A new segment of one page. Raises OSError where that is impossible."""
        if sys.platform != "linux" or not os.path.isdir(f"{FOLDER}/self/fd"):
            raise FileNotFoundError(f"no process can open files of another one: there is no {FOLDER}")
        secret, proof = secrets.token_hex(SECRET_BYTES // 2), secrets.token_hex(SECRET_BYTES // 2)
        descriptor = os.memfd_create(LABEL, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
            os.pwrite(descriptor, (secret + proof).encode(), 0)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, f"ps-rl-{os.getpid()}-{descriptor}-{secret}", proof)

    @classmethod
    def open(cls, name: str) -> "Segment":
        """The segment of another process. Raises OSError unless a worker of this user made it so."""
        match = NAME.fullmatch(name)
        if match is None:
            raise OSError("that is not the name of a segment")
        path = f"{FOLDER}/{match[1]}/fd/{match[2]}"
        if not os.readlink(path).startswith(f"/memfd:{LABEL}"):  # opening another kind of file may have effects
            raise OSError(f"{path} is not a segment")
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            head = _checked_head(descriptor)
            if not hmac.compare_digest(head[:SECRET_BYTES], match[3].encode()):
                raise OSError(f"{path} is another segment")
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, name, head[SECRET_BYTES:].decode("ascii", errors="replace"))

    @property
    def identity(self) -> tuple[int, int]:
        """Of the file, the same in every process."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def reserve(self, size: int) -> None:
        """Reserve `size` bytes beyond the first page. Raises OSError when there are not enough."""
        os.posix_fallocate(self._descriptor, PAGE_BYTES, size)

    def part(self, at: int, size: int) -> Bytes:
        """
        These bytes, mapped.

        Raises WireError when the file lacks them, or no slot can begin there; OSError when they cannot be mapped.
        """
        if at < PAGE_BYTES or at % 64:
            raise WireError(f"no slot of shared memory begins at byte {at}")
        if at + size > len(self._bytes):
            status = os.fstat(self._descriptor)
            whole = min(status.st_size, 512 * status.st_blocks, MOST_BYTES)  # without holes, which may fail to fill
            if at + size > whole:
                raise WireError(f"bytes {at} to {at + size} lie beyond the {whole} bytes of the segment")
            self._bytes = np.frombuffer(mmap.mmap(self._descriptor, whole), dtype=np.uint8)
        return self._bytes[at : at + size]

    def close(self) -> None:
        """Close the file. Parts of it stay mapped as long as arrays refer to them."""
        self._bytes = np.empty(0, dtype=np.uint8)
        os.close(self._descriptor)


def _checked_head(descriptor: int) -> bytes:
    """Secret and proof of a memory file of this user that cannot be shortened. Raises OSError."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise OSError("it is not a file of this user")
    if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        raise OSError("it can be shortened")
    head = os.pread(descriptor, 2 * SECRET_BYTES, 0)
    if len(head) != 2 * SECRET_BYTES:
        raise OSError("it holds no secret")
    return head
