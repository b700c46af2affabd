"""
A message and the bytes of its vector, to frames and back. PROTOCOL.md, section 2.

frame 0    PROTOCOL_TAG
frame 1    the header: a msgpack map of up to 384 KiB (from the server 1 MiB)
frame 2…   the vector's bytes, cut into chunks

With a mapped segment frame 0 may be MEMORY_TAG; then frame 2 names places in the segment, and the vector follows it.

Reading raises WireError and nothing else, whatever the bytes.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar, get_args

import msgpack
import msgspec

from ps_common.errors import WireError
from ps_common.protocol.messages import CARRIES_VECTOR, Message, ToServer, ToWorker
from ps_common.protocol.names import as_text
from ps_common.release import is_newer

Buffer = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)

PROTOCOL_TAG = b"ps-rl/1"
MEMORY_TAG = b"ps-rl/1 memory"
MAX_HEADER_BYTES = 384 * 1024  # to the server, from peers that may be strangers; SEED names up to 1,024 tensors
MAX_REPLY_HEADER_BYTES = 1024 * 1024  # from the server: a status names many workers
CHUNK_BYTES = 8 * 1024 * 1024  # one frame of 40 MB is two to three times slower than five of 8 MiB
MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_FRAMES = 2 + 512  # 4 GiB of vector

Place = tuple[Annotated[int, msgspec.Meta(ge=0, le=2**40)], Annotated[int, msgspec.Meta(ge=1, le=2**40)]]


class Places(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """
    Places in a mapped segment: first byte and number of bytes.

    `vector` holds the vector of this message. The server may write the vector of the reply into `answer`.
    """

    segment: Annotated[str, msgspec.Meta(max_length=64)]
    vector: Place | None = None
    answer: Place | None = None


# Made once: building a decoder takes longer than a message.
_ENCODER = msgspec.msgpack.Encoder()
_TO_SERVER: msgspec.msgpack.Decoder[ToServer] = msgspec.msgpack.Decoder(ToServer)
_TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
# The fields of each message to the server, by its type.
FIELDS = {kind.__struct_config__.tag: {"type", *kind.__struct_fields__} for kind in get_args(ToServer)}
_PLACES = msgspec.msgpack.Decoder(Places)


def to_frames(message: Message, vector: Sequence[Buffer] = ()) -> list[Buffer]:
    """The frames of a message and the buffers of its vector. These are cut, not copied."""
    return [PROTOCOL_TAG, _ENCODER.encode(message), *(chunk for buffer in vector for chunk in chunks(buffer))]


def with_places(frames: Sequence[Buffer], places: Places) -> list[Buffer]:
    """The frames of a message with places in a mapped segment."""
    return [MEMORY_TAG, frames[1], _ENCODER.encode(places), *frames[2:]]


def take_places(frames: Sequence[Buffer]) -> tuple[Sequence[Buffer], Places | None]:
    """The inverse of `with_places`; None for a message without places. Raises WireError."""
    if len(frames) < 3 or frames[0] != MEMORY_TAG:
        return frames, None
    try:
        places = _PLACES.decode(frames[2])
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise WireError(as_text(f"bad places in memory: {error}")) from error
    if places.vector is not None and len(frames) > 3:
        raise WireError("a vector may be in a mapped segment or in frames, not in both")
    return [PROTOCOL_TAG, frames[1], *frames[3:]], places


def chunks(buffer: Buffer) -> list[memoryview]:
    """A buffer of bytes cut into frames, not copied."""
    view = memoryview(buffer)
    return [view[at : at + CHUNK_BYTES] for at in range(0, len(view), CHUNK_BYTES)]


def read_to_server(
    frames: Sequence[Buffer], sender: Callable[[], str] = lambda: ""
) -> tuple[ToServer, Sequence[Buffer]]:
    """
    A message to the server and the buffers of its vector. Raises WireError.

    A sender of a later release may have more fields, which are ignored. The release is in the message, or was in the
    sender's HELLO: then `sender` returns it.
    """

    def decode(header: Buffer) -> ToServer:
        try:
            message = _TO_SERVER.decode(header)
        except msgspec.ValidationError:
            plain = _plain(header)
            if not isinstance(plain, dict) or not is_newer(str(plain.get("release", "")) or sender()):
                raise
            fields = FIELDS.get(plain.get("type"), set(plain))
            return _TO_SERVER.decode(_ENCODER.encode({name: plain[name] for name in plain if name in fields}))
        if _ENCODER.encode(message) != bytes(header):  # else no key is twice, and asking takes ten times as long
            _plain(header)
        return message

    return _read(frames, decode, MAX_HEADER_BYTES)


def read_to_worker(frames: Sequence[Buffer]) -> tuple[ToWorker, Sequence[Buffer]]:
    """
    A message to a worker and the buffers of its vector. Raises WireError.

    Of a key that stands twice the last counts: a worker trusts its server.
    """
    return _read(frames, _TO_WORKER.decode, MAX_REPLY_HEADER_BYTES)


def _read(frames: Sequence[Buffer], decode: Callable[[Buffer], M], max_header_bytes: int) -> tuple[M, Sequence[Buffer]]:
    if not 2 <= len(frames) <= MAX_FRAMES:
        raise WireError(f"a message has 2 to {MAX_FRAMES} frames, not {len(frames)}")
    if frames[0] != PROTOCOL_TAG:
        raise WireError(f"the first frame must be {PROTOCOL_TAG!r}")
    if len(frames[1]) > max_header_bytes:
        raise WireError(f"the header takes {len(frames[1])} bytes; {max_header_bytes} are allowed")
    try:
        message = decode(frames[1])
    # msgpack's errors have no base class: deep nesting, bad UTF-8 or odd keys raise any of these.
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException, msgspec.MsgspecError) as e:
        raise WireError(as_text(f"bad header: {e or type(e).__name__}")) from e  # the error may quote the message
    vector = list(frames[2:])
    inline = getattr(message, "inline", b"")
    if inline and vector:
        raise WireError("a vector may be in the header or in frames, not in both")
    if vector and not isinstance(message, CARRIES_VECTOR):
        raise WireError(f"{type(message).__name__} carries no vector, yet {len(vector)} frames follow it")
    return message, [inline] if inline else vector


def _plain(header: Buffer) -> Any:
    """The header as plain values. Raises WireError where a key is twice in one map: msgspec would take the last."""
    return msgpack.unpackb(header, object_pairs_hook=_without_duplicates)


def _without_duplicates(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise WireError("bad header: a key is twice in one map")
    return fields
