"""Error feedback: in the long run the server gets the sum of all gradients."""

import pytest
import torch

from ps_client.shell.gradient_encoder import GradientEncoder
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.tensors import BlockSpec, Schema, TensorSpec
from tests.rows import row

SIZE = 500
SCHEMA = Schema([TensorSpec("w", (SIZE,)), TensorSpec("count", (), role="statistic")])
needs_error_feedback = pytest.mark.parametrize(
    "codec", [name for name, codec in CODECS.items() if codec.needs_error_feedback]
)


def sent(encoder: GradientEncoder, gradient: torch.Tensor) -> torch.Tensor:
    """The gradient as the server decodes it."""
    return CODECS[encoder.codec].decode([encoder.encode(gradient)], SIZE + 1, 1)


def some_gradient(seed: int = 0) -> torch.Tensor:
    """Of very different sizes: most of it is far below what topk sends and int8 can tell from 0."""
    numbers = torch.Generator().manual_seed(seed)
    return torch.randn(SIZE + 1, generator=numbers) * torch.logspace(-5, 0, SIZE + 1)


@needs_error_feedback
def test_everything_arrives_in_the_end(codec: str) -> None:
    encoder, times = GradientEncoder(codec, SCHEMA), 400
    gradient = some_gradient()
    total = sum(sent(encoder, gradient) for _ in range(times))
    assert isinstance(total, torch.Tensor)
    missing = (total - times * gradient)[:SIZE].abs().max()
    once = (sent(GradientEncoder(codec, SCHEMA), gradient) - gradient)[:SIZE].abs().max()
    assert missing <= 40 * once, "the missing part must not grow with the number of gradients"


@needs_error_feedback
def test_the_error_of_one_gradient_is_in_the_next(codec: str) -> None:
    encoder = GradientEncoder(codec, SCHEMA)
    first = some_gradient()
    left_out = first - sent(encoder, first)
    assert left_out[:SIZE].abs().max() > 0
    second = sent(encoder, torch.zeros(SIZE + 1))
    alone = CODECS[codec].decode([CODECS[codec].encode(left_out, 1)], SIZE + 1, 1)
    assert torch.equal(second[:SIZE], alone[:SIZE])


def test_statistics_are_sent_as_they_are_and_once() -> None:
    for codec in CODECS:
        with row(codec):
            encoder = GradientEncoder(codec, SCHEMA)
            gradient = some_gradient()
            gradient[-1] = 16777213.0
            assert sent(encoder, gradient)[-1] == 16777213.0
            assert sent(encoder, torch.zeros(SIZE + 1))[-1] == 0.0


@needs_error_feedback
def test_the_error_in_a_block_that_is_not_moved_waits(codec: str) -> None:
    """The gradients that move it arrive as if no others had been between them."""
    specs = [TensorSpec(name, (SIZE // 2,), block=BlockSpec(name=name)) for name in ("a", "b")]
    encoder = GradientEncoder(codec, Schema([*specs, SCHEMA.specs[1]]))
    alone = GradientEncoder(codec, Schema([*specs, SCHEMA.specs[1]]))
    for seed in range(20):
        of_b = some_gradient(seed)
        of_b[: SIZE // 2] = 0
        between = some_gradient(100 + seed)
        between[SIZE // 2 : -1] = 0
        encoded = encoder.encode(between, blocks=("a",))
        assert not CODECS[codec].decode([encoded], SIZE + 1, 1)[SIZE // 2 : SIZE].any()
        encoded, wanted = (one.encode(of_b, blocks=("b",)) for one in (encoder, alone))
        assert bytes(encoded) == bytes(wanted)
