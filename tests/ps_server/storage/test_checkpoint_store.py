"""A run in an object store: which server may write there, what counts as durable, and what a later life finds."""

import secrets
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from ps_common.errors import Replaced, StoreError
from ps_common.protocol.lineage import Lineage
from ps_common.run_folder import object_store, stored_run
from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.run_folder.object_store import ObjectStore
from ps_common.run_folder.paths import ASIDE, BEST, checkpoint_name
from ps_server.state.effects import SaveCheckpoint
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.checkpoint_writer import CheckpointWriter, Written
from tests.records import a_record

FIRST = Lineage.begun("0123456789abcdef", secret="s", draw=1)
SECOND = FIRST.resumed(draw=2)
PATIENCE_SECONDS = 20.0


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(8)}/run"


def a_store(url: str) -> CheckpointStore:
    return CheckpointStore(url, flag="--checkpoint-dir")


def objects(url: str) -> list[str]:
    return [f"{one.life - FIRST.life}/{one.file}" for one in sorted(stored_run.stored_in(ObjectStore(url, flag="--x")))]


def a_file(folder: Path, steps: int, *, name: str = "") -> Path:
    path = folder / (name or checkpoint_name(steps, 1))
    folder.mkdir(exist_ok=True)
    write_checkpoint(path, {"weights": torch.full((3,), float(steps))}, a_record(steps=steps))
    return path


def put(store: CheckpointStore, path: Path, lineage: Lineage, **how: Any) -> str:
    return store.put(path, lineage, **({"best": False, "milestone": "", "keep": 5} | how))


def fetched(store: CheckpointStore, folder: Path, *, is_ours: bool = False) -> list[int]:
    """The steps of the checkpoints in the folder, the newest last."""
    folder.mkdir(exist_ok=True)
    store.fetch_newest(folder, is_ours=is_ours)
    return [read_checkpoint(path)[1].progress.global_steps for path in sorted(folder.glob("checkpoint-*.safetensors"))]


def test_of_two_servers_that_begin_the_same_life_one_does(url: str) -> None:
    won, lost = [], []

    def begin(draw: int) -> None:
        try:
            a_store(url).claim(FIRST.resumed(draw=draw))
            won.append(draw)
        except Replaced as error:
            lost.append(error.epoch)

    threads = [threading.Thread(target=begin, args=(draw,)) for draw in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = won
    assert set(lost) == {FIRST.resumed(draw=winner).epoch}


def test_a_replaced_server_finds_out_with_its_next_checkpoint_which_is_durable_for_nobody(
    url: str, tmp_path: Path
) -> None:
    old, new = a_store(url), a_store(url)
    put(old, a_file(tmp_path, 10), FIRST)
    new.claim(SECOND)
    assert fetched(new, tmp_path / "new") == [10]
    with pytest.raises(Replaced) as replaced:
        put(old, a_file(tmp_path, 99), FIRST)
    assert replaced.value.epoch == SECOND.epoch
    put(new, a_file(tmp_path, 11), SECOND)
    assert fetched(a_store(url), tmp_path / "third") == [11], "T is higher in the old life, and does not count"


def test_what_was_uploaded_before_the_next_life_began_is_found_by_it(url: str, tmp_path: Path) -> None:
    old = a_store(url)
    put(old, a_file(tmp_path, 10), FIRST)
    put(old, a_file(tmp_path, 20), FIRST)
    new = a_store(url)
    lineage = new.lineage()
    assert lineage is not None
    new.claim(lineage.resumed(draw=5))
    assert fetched(new, tmp_path / "new") == [20]


def test_a_standby_that_takes_over_begins_its_life_with_its_first_checkpoint(url: str, tmp_path: Path) -> None:
    put(a_store(url), a_file(tmp_path, 10), FIRST)
    put(a_store(url), a_file(tmp_path, 12), FIRST.promoted(draw=1))
    assert a_store(url).lineage() == FIRST.promoted(draw=1)


def test_a_damaged_checkpoint_is_set_aside_in_the_store_and_the_one_before_it_counts(url: str, tmp_path: Path) -> None:
    store = a_store(url)
    put(store, a_file(tmp_path, 10), FIRST)
    damaged = a_file(tmp_path, 20)
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    put(store, damaged, FIRST)
    assert fetched(a_store(url), tmp_path / "new") == [10]
    assert f"0/{checkpoint_name(20, 1)}{ASIDE}" in objects(url)
    assert f"0/{checkpoint_name(20, 1)}" not in objects(url)


def test_newer_checkpoints_of_the_folder_are_kept_only_if_nobody_has_served_since(url: str, tmp_path: Path) -> None:
    put(a_store(url), a_file(tmp_path, 10), FIRST)
    folder = tmp_path / "here"
    a_file(folder, 30)
    assert fetched(a_store(url), folder, is_ours=True) == [30], "the store has failed since, and the disk is here"
    assert fetched(a_store(url), folder, is_ours=False) == [10]
    assert (folder / f"{checkpoint_name(30, 1)}{ASIDE}").exists()


def test_a_failing_store_is_reported_with_its_reason_and_the_next_checkpoint_is_tried(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = CheckpointWriter(tmp_path / "checkpoints", a_store(url))

    def written(steps: int, lineage: Lineage = FIRST) -> Written:
        record = a_record(steps=steps, lineage=lineage)
        writer.write(SaveCheckpoint({"weights": torch.zeros(3)}, record, steps, best=False, keep=5, milestone=None))
        return writer.results.get(timeout=PATIENCE_SECONDS)

    def refuses(*_: object) -> None:
        raise StoreError("s3://bucket: 503 Slow Down")

    monkeypatch.setattr(object_store.ObjectStore, "upload", refuses)
    assert written(1).error == "s3://bucket: 503 Slow Down"
    monkeypatch.undo()
    assert written(2) == Written(f"{url}/lives/{FIRST.life:09d}/{checkpoint_name(2, 1)}")
    a_store(url).claim(SECOND)
    assert written(3).replaced_in == SECOND.epoch
    assert writer.close(within_seconds=PATIENCE_SECONDS)


def test_a_candidate_that_is_kept_is_the_best_in_the_store_too(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    writer = CheckpointWriter(folder, a_store(url))
    record = a_record(steps=7, lineage=FIRST)
    writer.write(SaveCheckpoint({"weights": torch.zeros(3)}, record, 7, best=False, keep=5, candidate=True))
    assert writer.results.get(timeout=PATIENCE_SECONDS).error == ""
    writer.keep_candidate()
    assert writer.close(within_seconds=PATIENCE_SECONDS)
    assert a_store(url)._store.read(f"lives/{FIRST.life:09d}/{BEST}") == (folder / BEST).read_bytes()
