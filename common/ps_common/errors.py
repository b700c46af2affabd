"""Every error of ps-rl that a user may meet. A message names the flag, worker or tensor, and what to do."""

# Codes of refusals of what a worker is: its flags, its code, its network.
FINAL = {"bad_run", "bad_schema", "contradiction", "other_code", "protocol", "schema_mismatch", "unknown_codec"}


class PsRlError(Exception):
    """Base of all errors that a program reports in one sentence instead of a traceback."""

    is_final = False  # a program that is started again with the same flags would end with it, too


class SettingsError(PsRlError):
    """A flag, preset or file makes no sense."""


class WireError(PsRlError):
    """Bytes that are not a message. It is the peer's fault, whose messages a server counts and refuses."""


class UnknownCodec(WireError):
    """A codec that does not exist, or that loses too much for weights."""


class SchemaMismatch(PsRlError):
    """Tensors that are not those of this run."""

    is_final = True


class RequestRefused(PsRlError):
    """The server refused a request."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(f"the server refused ({code}): {reason}")
        self.code = code
        self.is_final = code in FINAL
        self.reason = reason


class ServerUnreachable(PsRlError):
    """No reply within the named time."""


class RunEnded(PsRlError):
    """The server has ended the run: its budget or target was reached, or an admin stopped it."""


class CheckpointError(PsRlError):
    """A checkpoint that cannot be written or read."""


class DamagedCheckpoint(CheckpointError):
    """A file whose content is not what was written; the file itself can be read."""


class OtherFormat(CheckpointError):
    """
    A file in a format that this version of ps-rl does not read. It may be well-formed, so nobody resumes an older one
    unasked.
    """


class StoreError(CheckpointError):
    """An object store that refuses, does not reply, or lacks what is asked for."""


class Replaced(StoreError):
    """Another server continues the run of this store, in a later epoch."""

    def __init__(self, url: str, epoch: int) -> None:
        super().__init__(f"{url}: another server has begun a later life of this run there")
        self.epoch = epoch


class ReceiptError(PsRlError):
    """A receipt that cannot be written or read, or whose games differ in a replay."""


class Fenced(PsRlError):
    """A standby was promoted; this server must not serve the run any more."""
