"""
Files that somebody has made by hand in place of those that a release writes: each is refused by its reader, with one
sentence that begins with its path and can be shown in a terminal.
"""

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from ps_common.errors import PsRlError, SettingsError
from ps_common.protocol.lineage import Lineage
from ps_common.run_folder.checkpoint_file import _digest, read_checkpoint
from ps_common.run_folder.paths import LINEAGE
from ps_common.run_folder.trained import trained_in
from ps_server.storage.earlier_life import read_lineage, write_lineage
from rl_eval.policy_folder import read_model
from rl_eval.receipt import read_receipt
from tests.nested import Place, places_in, values, with_value
from tests.rows import row

SAMPLE = Path(__file__).parent / "samples" / "0.2.0"
ROWS_AT_LEAST = 51
MOST_CHARACTERS = 1200  # of a sentence
DEEP = 10_000
WRITTEN = Lineage.begun(16 * "1", secret="a secret of the run", draw=0).replaced("there:5555", epoch=2**30)
PLAIN = json.loads(json.dumps({"run_id": 16 * "1", "secret": "a secret of the run", "epoch": 2**30} | {
    "shard": {"number": 1, "addresses": ["a:1", "b:2,c:3"]}, "replaced_by": "there:5555",
}))  # fmt: skip


def tensors_and_metadata(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


class Kind:
    """A kind of file: a sound one, and all that reads it."""

    def __init__(self, sound: Path, *readers: Callable[[Path], Any]) -> None:
        self.sound, self.readers = sound, readers
        self.is_binary = sound.suffix == ".safetensors"
        self.plain = json.loads(tensors_and_metadata(sound)[1]["record"] if self.is_binary else sound.read_text())

    def write(self, path: Path, text: str, **changed: str | None) -> None:
        """A file that is sound but for its JSON, and what of its metadata is changed."""
        if not self.is_binary:
            path.write_text(text, encoding="utf-8", errors="surrogatepass")
            return
        tensors, metadata = tensors_and_metadata(self.sound)
        metadata |= {"record": text} | ({"xxh3_128": _digest(tensors, text.encode())} if "xxh3_128" in metadata else {})
        kept = {name: value for name, value in (metadata | changed).items() if value is not None}
        safetensors.torch.save_file(tensors, path, kept)


def kinds(folder: Path) -> dict[str, Kind]:
    write_lineage(folder, WRITTEN)
    checkpoint = next(SAMPLE.glob("run/shard-1-of-2/checkpoints/*.safetensors"))
    return {
        "checkpoint": Kind(checkpoint, read_checkpoint, trained_in),
        "policy": Kind(SAMPLE / "policy" / "model.safetensors", read_model, trained_in),
        "receipt": Kind(SAMPLE / "policy" / "receipt.json", read_receipt),
        "lineage": Kind(folder / LINEAGE, lambda path: read_lineage(path.parent)),
    }


def crafted_of_any_kind(kind: Kind, path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What can be done to a file whatever it holds."""
    sound = kind.sound.read_bytes()
    yield "empty", lambda: path.write_bytes(b"")
    yield "a folder", path.mkdir
    yield "a pipe that nobody writes to", lambda: os.mkfifo(path)
    yield "a link to itself", lambda: path.symlink_to(path)
    yield "zeros", lambda: path.write_bytes(bytes(4096))
    yield "half of it", lambda: path.write_bytes(sound[: len(sound) // 2])
    yield "its first byte", lambda: path.write_bytes(sound[:1])
    yield "no UTF-8", lambda: path.write_bytes(b"\xff\xfe" + sound)
    for name, text in {
        "a number": "5",
        "a list": "[]",
        "null": "null",
        "an empty table": "{}",
        "a table without end": '{"x":' * DEEP,
        "deep lists": '{"format":' + "[" * DEEP + "]" * DEEP + "}",
        "NaN": json.dumps(kind.plain | {"run_id": float("nan"), "version": float("nan"), "seed": float("nan")}),
        "a huge number": json.dumps(kind.plain | dict.fromkeys(("epoch", "version", "seed", "minutes"), 10**400)),
        "an escape sequence as a value": json.dumps(kind.plain | dict.fromkeys(("epoch", "seed"), "\x1b[2J")),
        "an escape sequence as a name": json.dumps({"\x1b]0;x\x07": 1} | kind.plain | dict.fromkeys(("epoch", "seed"))),
        "a long name": json.dumps({"y" * 10**6: 1} | kind.plain | dict.fromkeys(("epoch", "seed"))),
        "half of a surrogate": '{"format": "\\ud800", "run_id": "\\udfff"}',
    }.items():
        yield name, lambda text=text: kind.write(path, text)


def crafted_with_tensors(kind: Kind, path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """What can be done to a file of tensors: its header, and what its metadata says."""
    text = json.dumps(kind.plain)

    def with_header(header: bytes, length: int | None = None) -> Callable[[], Any]:
        return lambda: path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header)

    yield "a header of four exabytes", with_header(b"{}", 2**62)
    yield "an empty header", with_header(b"")
    yield "a header that is a list", with_header(b"[]")
    yield "no tensor", with_header(b"{}")
    for name, of in {
        "outside of the file": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]},
        "of less than no elements": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        "of an unknown type": {"dtype": "F999", "shape": [1], "data_offsets": [0, 4]},
    }.items():
        yield f"a tensor {name}", with_header(json.dumps({"weights": of}).encode() + bytes(4))
    for said in ("ps-rl checkpoint 5", "ps-rl policy 2", "ps-rl checkpoint 1", "ps-rl policy 0", "ps-rl receipt 1"):
        yield f"format {said}", lambda said=said: kind.write(path, text, format=said)
    later = "ps-rl checkpoint 5" if kind.readers[0] is read_checkpoint else "ps-rl policy 2"
    yield "a release that moves the cursor", lambda: kind.write(path, "{}", format=later, release="9.9.9+\x1b[2J")
    yield (
        "a record that names such a release",
        lambda: kind.write(path, '{"release": "9.9.9+\\u001b[2J"}', format=later),
    )
    for name, said in {"nothing": None, "a list": "[]", "an endless number": f"ps-rl checkpoint {9 * '9'}9"}.items():
        yield f"as format {name}", lambda said=said: kind.write(path, text, format=said)
    yield "no record", lambda: kind.write(path, text, record=None)


def check_refused(path: Path, read: Callable[[Path], Any]) -> None:
    with pytest.raises(PsRlError) as raised:
        read(path)
    sentence = str(raised.value)
    assert str(path) in sentence
    assert len(sentence) < MOST_CHARACTERS, sentence[:MOST_CHARACTERS]
    assert sentence.isprintable(), repr(sentence)


def test_a_crafted_file_is_refused_with_one_sentence(tmp_path: Path) -> None:
    rows = 0
    for name, kind in kinds(tmp_path).items():
        folder = tmp_path / name
        path = folder / kind.sound.name
        folder.mkdir()
        crafted = [*crafted_of_any_kind(kind, path)]
        for what, craft in [*crafted, *(crafted_with_tensors(kind, path) if kind.is_binary else ())]:
            craft()
            for read in kind.readers:
                with row(name, what, getattr(read, "__name__", "")):
                    check_refused(path, read)
                    rows += 1
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    assert rows >= ROWS_AT_LEAST


@given(at=st.sampled_from(list(places_in(PLAIN))), value=values)
def test_a_lineage_with_any_field_replaced_is_read_or_refused(
    at: Place, value: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("lineage")
    (folder / LINEAGE).write_text(json.dumps(with_value(PLAIN, at, value)))
    with contextlib.suppress(SettingsError):
        lineage = read_lineage(folder)
        assert lineage is not None
        write_lineage(folder, lineage.resumed(draw=1))
        assert read_lineage(folder) == lineage.resumed(draw=1)
