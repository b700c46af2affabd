"""
Memory that a worker and a server of one host share, so that vectors need not go through the network.

A segment is a file in /dev/shm that a worker makes for one connection: a page that begins with a random proof, then as
many slots as the worker reserves. The server opens it by the name in HELLO and says the proof in WELCOME: who can say
it sees the same memory. What lies where, and who may touch it when, is decided above.

Nothing stays behind. The file has a name only until WELCOME, and is locked from before it has one until its worker is
gone; `sweep` removes names that nobody has locked. Without a name it ends with the last process that has it open.
Nothing faults. Space is reserved before it is used, so that a full /dev/shm is an OSError here; and the server maps
only files of its own user, as far as they are reserved. (Whoever truncates such a file can also kill the server.)
"""

import contextlib
import fcntl
import mmap
import os
import re
import secrets
import stat

import numpy as np

from common.errors import WireError

FOLDER = "/dev/shm"
NAME = re.compile(r"ps-rl-[0-9a-f]{32}")
PROOF_BYTES = 32
PAGE_BYTES = 4096
MOST_BYTES = 2**34

Bytes = np.ndarray  # of uint8


class Segment:
    """One file, open here. Whoever holds an array of it keeps that part mapped."""

    def __init__(self, descriptor: int, name: str, proof: str, *, is_named: bool) -> None:
        """Use `make` or `open`."""
        self.name = name
        self.proof = proof
        self.is_named = is_named  # by us: we remove the name
        self._descriptor = descriptor
        self._bytes = np.empty(0, dtype=np.uint8)  # what is mapped

    @classmethod
    def make(cls) -> "Segment":
        """A new one, of a page, with a name. Raises OSError where that is impossible."""
        name, proof = f"ps-rl-{secrets.token_hex(16)}", secrets.token_hex(PROOF_BYTES // 2)
        if not os.path.isdir(FOLDER):
            raise FileNotFoundError(f"there is no {FOLDER}")
        descriptor = os.open(FOLDER, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.posix_fallocate(descriptor, 0, PAGE_BYTES)
            os.pwrite(descriptor, proof.encode(), 0)
            # Only with a folder's descriptor does this follow /proc's link, which is how a nameless file gets a name.
            folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.link(f"/proc/self/fd/{descriptor}", name, dst_dir_fd=folder, follow_symlinks=True)
            finally:
                os.close(folder)
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, name, proof, is_named=True)

    @classmethod
    def open(cls, name: str) -> "Segment":
        """That of another process. Raises OSError when it is not there, or is not what a worker of our user made."""
        descriptor = _open(name)
        try:
            proof = os.pread(descriptor, PROOF_BYTES, 0).decode("ascii", errors="replace")
            if len(proof) != PROOF_BYTES:
                raise OSError(f"{name} holds no proof")
        except OSError:
            os.close(descriptor)
            raise
        return cls(descriptor, name, proof, is_named=False)

    @property
    def identity(self) -> tuple[int, int]:
        """Of the file, whoever has it open."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def reserve(self, size: int) -> None:
        """Make room for `size` bytes beyond the first page. Raises OSError when there is not enough."""
        os.posix_fallocate(self._descriptor, PAGE_BYTES, size)

    def part(self, at: int, size: int) -> Bytes:
        """
        These bytes, mapped.

        Raises WireError when the file has no such bytes, or no slot can begin there; OSError when it cannot be mapped.
        """
        if at < PAGE_BYTES or at % 64:
            raise WireError(f"no slot of shared memory begins at byte {at}")
        if at + size > len(self._bytes):
            status = os.fstat(self._descriptor)
            whole = min(status.st_size, 512 * status.st_blocks, MOST_BYTES)  # no holes: to fill one may fail
            if at + size > whole:
                raise WireError(f"bytes {at} to {at + size} of {whole} bytes of shared memory")
            self._bytes = np.frombuffer(mmap.mmap(self._descriptor, whole), dtype=np.uint8)
        return self._bytes[at : at + size]

    def remove_name(self) -> None:
        """Nobody can open it any more; whoever has it open keeps it."""
        if self.is_named:
            self.is_named = False
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{FOLDER}/{self.name}")

    def close(self) -> None:
        """Let go of it. What others hold of it stays mapped until they let go."""
        self.remove_name()
        self._bytes = np.empty(0, dtype=np.uint8)
        os.close(self._descriptor)


def leaves_half_free(size: int) -> bool:
    """Whether others have room left when so many bytes more are reserved."""
    status = os.statvfs(FOLDER)
    return 2 * (status.f_bavail * status.f_frsize - size) >= status.f_blocks * status.f_frsize


def sweep() -> None:
    """Remove the names that killed workers of our user have left."""
    try:
        names = os.listdir(FOLDER)
    except OSError:  # there is no such folder, it may not be listed, or too many files are open
        return
    for name in filter(NAME.fullmatch, names):
        with contextlib.suppress(OSError):  # it is gone meanwhile, or somebody else's
            descriptor = _open(name)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(f"{FOLDER}/{name}")
            finally:
                os.close(descriptor)


def _open(name: str) -> int:
    """The descriptor of a regular file of our user, with such a name, that nobody else may open. Raises OSError."""
    if not NAME.fullmatch(name):
        raise OSError(f"{name!r} is no name of a segment")
    descriptor = os.open(f"{FOLDER}/{name}", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) != 0o600:
        os.close(descriptor)
        raise OSError(f"{name} is not a file of this user alone")
    return descriptor
