import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ps_common.errors import CheckpointError
from ps_common.protocol.record import Record
from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.run_folder.trained import trained_as
from ps_common.settings.run_spec import RunSpec
from rl_agent.networks.flat_network import flatten
from tests.records import a_record
from tests.schemas import schema_of_tensors

VECTORS = {
    "weights": torch.arange(5.0),
    "optimizer.square": torch.full((5,), 0.5),
    "optimizer.step": torch.tensor(7e-4),
}
RECORD, OLD = a_record(5, version=2**40), a_record(2)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint that nobody changes."""
    path = tmp_path_factory.mktemp("sound") / "1.safetensors"
    write_checkpoint(path, VECTORS, RECORD)
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A checkpoint that is to be replaced."""
    path = tmp_path / "1.safetensors"
    write_checkpoint(path, {"weights": torch.ones(2)}, OLD)
    return path


def assert_holds(path: Path, vectors: dict[str, Tensor], record: Record) -> None:
    read, told = read_checkpoint(path)
    assert told == record
    assert read.keys() == vectors.keys()
    for name, vector in vectors.items():
        assert (read[name].dtype, read[name].shape) == (vector.dtype, vector.shape)
        assert torch.equal(read[name], vector)


def assert_is_old(path: Path) -> None:
    assert_holds(path, {"weights": torch.ones(2)}, OLD)
    assert os.listdir(path.parent) == [path.name]


@contextmanager
def no_file_longer_than(length_bytes: int) -> Iterator[None]:
    """The disk is full, to this process: writing further fails with EFBIG."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_checkpoint_is_read_as_it_was_written_and_nothing_lies_beside_it(sound: Path) -> None:
    assert_holds(sound, VECTORS, RECORD)
    assert os.listdir(sound.parent) == [sound.name]


def test_vectors_outlive_the_file_that_they_were_read_from(old: Path) -> None:
    vectors, _ = read_checkpoint(old)
    write_checkpoint(old, {"weights": torch.zeros(2)}, OLD)
    old.unlink()
    assert vectors["weights"].tolist() == [1.0, 1.0]


def test_a_half_written_checkpoint_is_recognised_wherever_it_ends(sound: Path, tmp_path: Path) -> None:
    content = sound.read_bytes()
    path = tmp_path / "half.safetensors"
    for length in [*range(0, len(content), 5), len(content) - 1]:
        path.write_bytes(content[:length])
        with pytest.raises(CheckpointError, match=r"half\.safetensors: "):
            read_checkpoint(path)


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_recognised_wherever_it_is(
    place: float, bit: int, sound: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(sound.read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flipped.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"flipped\.safetensors: "):
        read_checkpoint(path)


def test_other_names_and_shapes_for_the_same_bytes_are_recognised(sound: Path, tmp_path: Path) -> None:
    content = sound.read_bytes()
    for there, here in ((b"[5]", b"[1]"), (b"[5]", b"[9]"), (b'"weights"', b'"heights"')):
        assert there in content
        (tmp_path / "1.safetensors").write_bytes(content.replace(there, here, 1))
        with pytest.raises(CheckpointError, match="is damaged"):
            read_checkpoint(tmp_path / "1.safetensors")


def test_a_full_disk_leaves_the_old_checkpoint_and_nothing_beside_it(old: Path) -> None:
    with no_file_longer_than(4096), pytest.raises(CheckpointError, match=r"cannot be written.*File too large"):
        write_checkpoint(old, {"weights": torch.ones(10_000)}, a_record(10_000))
    assert_is_old(old)


def test_a_checkpoint_is_on_the_disk_before_it_gets_its_name(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    flush, rename = os.fsync, Path.rename

    def flushed(descriptor: int) -> None:
        events.append("folder" if Path(f"/proc/self/fd/{descriptor}").readlink() == old.parent else "file")
        flush(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        events.append("rename")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(Path, "rename", renamed)
    write_checkpoint(old, VECTORS, RECORD)
    assert events == ["file", "rename", "folder"]


def test_the_weights_of_a_checkpoint_come_by_name_with_the_run_they_belong_to(tmp_path: Path) -> None:
    tensors = {"layer.weight": torch.randn(2, 3), "layer.bias": torch.randn(2), "scale": torch.randn(())}
    run = RunSpec(preset="mine", seed=3)
    record = a_record(schema=schema_of_tensors(tensors), run=run, version=4)
    write_checkpoint(tmp_path / "1.safetensors", {"weights": flatten(tensors)}, record)
    trained = trained_as(tmp_path / "1.safetensors")
    weights = trained.schema.views(trained.weights)
    assert trained.run == run
    assert list(weights) == list(tensors)
    assert all(torch.equal(weights[name], tensor) for name, tensor in tensors.items())
    assert trained.version == 4
