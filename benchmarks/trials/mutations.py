"""
Malformed messages, drawn by a seed: frames of the protocol, mutated in every way that we could think of.

No mutation changes a weight: gradients are 0 in every message that the server could accept. No mutation stops the run
or uses an honest worker's name, although without keys any peer could do both.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgpack
import msgspec
import numpy as np

from ps_common.protocol.tensors import Schema
from ps_common.protocol.wire import MAX_FRAMES, PROTOCOL_TAG

Frames = list[bytes]
Fields = dict[str, Any]

ODD: Sequence[Any] = (
    None, True, -1, 0, 2**53, 2**53 + 1, 2**63, 2**64 - 1, -(2**63), 0.5, float("nan"), float("-inf"), "", "x" * 300,
    "\x00", "\x1b[2J", b"", b"\xff" * 64, [], [1, 1], [[]], {}, {"a": {"b": {"c": 1}}}, [-1] * 100, "float32",
)  # fmt: skip
SEQUENCES = (1, 2, 3, 63, 64, 65, 66, 1000, 2**31, 2**32, 2**53 - 1)
WRONG_VALUES = (float("nan"), float("inf"), float("-inf"), 3e38)
NAMES = 500  # of fake workers


class Mutations:
    """An endless source of malformed messages to a run of `schema`."""

    def __init__(self, schema: Schema, seed: int) -> None:
        self._schema = schema
        self._random = random.Random(seed)
        self._zeros = np.zeros(schema.size, dtype="<f4").tobytes()
        self._ways: tuple[Callable[[], Frames], ...] = (
            self.plain, self._flipped, self._truncated, self._frames_missing, self._frames_doubled, self._many_frames,
            self._odd_field, self._missing_field, self._unknown_field, self._nested, self._key_twice, self._wrong_tag,
            self._wrong_schema, self._wrong_length, self._wrong_codec, self._wrong_numbers, self._wrong_sequence,
            self._both_places, self._huge_header, self._noise,
        )  # fmt: skip

    def next(self) -> Frames:
        return self._random.choice(self._ways)()

    def hello(self) -> Frames:
        """A fake worker joins, so that the server processes its pushes from then on."""
        return _framed(self._fields("HELLO"))

    def plain(self) -> Frames:
        """A well-formed message, from a joined or an unknown sender, new or a duplicate."""
        kinds = ["HELLO", "PULL", "PUSH", "PUSH", "REPORT", "HEARTBEAT", "GOODBYE", "STATUS_REQUEST", "SEED"]
        rare = "CHECKPOINT_REQUEST" if self._random.random() < 0.05 else "PUSH"
        fields = self._fields(self._random.choice([*kinds, rare]))
        return _framed(fields, *([self._zeros] if fields["type"] in ("PUSH", "SEED") else []))

    def _fields(self, kind: str) -> Fields:
        drawn = self._random
        fields: Fields = {"type": kind, "request": drawn.randrange(1, 1000)}
        match kind:
            case "HELLO":
                who: Fields = {"worker_id": f"nobody-{drawn.randrange(NAMES)}", "secret": f"{drawn.randrange(100):016}"}
                who |= {"incarnation": drawn.randrange(3), "run_id": drawn.choice(["", "", "another"])}
                return fields | who | {"protocols": [1, 1], "codecs": ["float32"]}
            case "SEED":
                return fields | {"schema": msgspec.to_builtins(self._schema.specs)}
            case "PUSH":
                fields |= {"sequence": drawn.randrange(1, 70), "computed_on": drawn.randrange(1000), "epoch": 0}
                fields |= {"schema_hash": self._schema.hash, "steps": 1}
                return fields | ({"weight_codec": "float32"} if drawn.random() < 0.5 else {})
            case "REPORT":
                return fields | {"sequence": drawn.randrange(1, 70), "episodes": [[1.0, 5]], "meters": {"loss": 0.5}}
            case _:
                return fields

    def _push(self, **fields: Any) -> Fields:
        return self._fields("PUSH") | fields

    # -- the ways ---------------------------------------------------------------------------------------------------

    def _flipped(self) -> Frames:
        """Flipped bits in the header."""
        tag, header, *rest = self.plain()
        return [tag, flipped(header, self._random, most=8), *rest]

    def _truncated(self) -> Frames:
        tag, header, *rest = self.plain()
        return [tag, header[: self._random.randrange(len(header))], *rest]

    def _frames_missing(self) -> Frames:
        frames = self.plain()
        del frames[self._random.randrange(len(frames))]
        return frames or [b""]

    def _frames_doubled(self) -> Frames:
        frames = self.plain()
        at = self._random.randrange(len(frames))
        return [*frames[:at], frames[at], *frames[at:]]

    def _many_frames(self) -> Frames:
        return [*self.plain(), *[b""] * self._random.choice([1, 10, MAX_FRAMES, 2 * MAX_FRAMES])]

    def _odd_field(self) -> Frames:
        _, header, *rest = self.plain()
        fields = msgpack.unpackb(header)
        fields[self._random.choice(sorted(fields))] = self._random.choice(ODD)
        return _framed(fields, *rest)

    def _missing_field(self) -> Frames:
        _, header, *rest = self.plain()
        fields = msgpack.unpackb(header)
        del fields[self._random.choice(sorted(fields))]
        return _framed(fields, *rest)

    def _unknown_field(self) -> Frames:
        _, header, *rest = self.plain()
        return _framed(msgpack.unpackb(header) | {"more": self._random.choice(ODD)}, *rest)

    def _nested(self) -> Frames:
        """Lists in lists, or maps in maps, thousands deep; sometimes as the value of a field."""
        opening = self._random.choice([b"\x91", b"\x81\xa1a"])
        deep = opening * self._random.choice([10, 500, 1100, 20_000]) + b"\xc0"
        head = b"\x83\xa4type\xa5HELLO\xa7request\x01\xacproposed_run"
        return [PROTOCOL_TAG, self._random.choice([deep, head + deep])]

    def _key_twice(self) -> Frames:
        key = self._random.choice([b"\xa7request\x01", b"\xa4type\xa4PULL"])
        return [PROTOCOL_TAG, b"\x83\xa4type\xa4PULL\xa7request\x01" + key]

    def _wrong_tag(self) -> Frames:
        return [
            self._random.choice([b"", b"ps-rl/2", b"GET / HTTP/1.1\r\n", PROTOCOL_TAG * 1000]),
            *self.plain()[1:],
        ]

    def _wrong_schema(self) -> Frames:
        wrong = self._schema.hash[:-1] + self._random.choice("ghij")
        return _framed(self._push(schema_hash=wrong), np.ones(self._schema.size, "<f4").tobytes())

    def _wrong_length(self) -> Frames:
        length = self._random.choice([0, 1, 3, len(self._zeros) - 1, len(self._zeros) + 4, 100_000])
        return _framed(self._push(), b"\x00" * length)

    def _wrong_codec(self) -> Frames:
        codec = self._random.choice(["zip", "bfloat16", "float16", "int8", "topk", "float32 "])
        field = self._random.choice(["codec", "weight_codec"])
        return _framed(self._fields("PUSH") | {field: codec}, self._zeros)

    def _wrong_numbers(self) -> Frames:
        vector = np.zeros(self._schema.size, dtype="<f4")
        vector[self._random.randrange(self._schema.size)] = self._random.choice(WRONG_VALUES)
        return _framed(self._push(), vector.tobytes())

    def _wrong_sequence(self) -> Frames:
        """A duplicate, a push far ahead of its predecessors, or one with a random `oldest`."""
        sequence, oldest = self._random.choice(SEQUENCES), self._random.choice(SEQUENCES)
        return _framed(self._push(sequence=sequence, oldest=oldest), self._zeros)

    def _both_places(self) -> Frames:
        return _framed(self._push(inline=self._zeros), self._zeros)

    def _huge_header(self) -> Frames:
        return _framed(self._fields("HEARTBEAT") | {"more": b"\x00" * self._random.choice([60_000, 70_000, 500_000])})

    def _noise(self) -> Frames:
        return [self._random.randbytes(self._random.randrange(200)) for _ in range(self._random.randrange(1, 5))]


def flipped(data: bytes, drawn: random.Random, *, most: int) -> bytes:
    """A copy with 1 to `most` bits flipped."""
    mutated = bytearray(data)
    for _ in range(drawn.randrange(1, most + 1)):
        at = drawn.randrange(8 * len(mutated))
        mutated[at // 8] ^= 1 << at % 8
    return bytes(mutated)


def _framed(fields: Fields, *vector: bytes) -> Frames:
    return [PROTOCOL_TAG, msgpack.packb(fields), *vector]
