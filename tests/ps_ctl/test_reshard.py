"""`ps-ctl reshard`: the same run with another number of shards, in a folder and in a store."""

import secrets
from pathlib import Path

import fsspec
import msgspec
import pytest
import torch
from safetensors.torch import save_file

from ps_common.errors import CheckpointError, OtherFormat, Replaced, SettingsError
from ps_common.protocol.lineage import Shard
from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.run_folder.folder_lock import FolderLocks
from ps_common.run_folder.paths import CHECKPOINTS, STORE, checkpoint_name, shard_folder
from ps_common.run_folder.trained import trained_in
from ps_ctl.folder_commands import reshard
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.earlier_life import read_lineage
from tests.ps_server.storage.test_shard_folders import a_sharded_run, in_a_store, place_of, resumed
from tests.ps_server.transcripts import a_run


def places_of(shards: int) -> list[Shard | None]:
    return [place_of(number, shards) for number in range(1, shards + 1)] if shards > 1 else [None]


@pytest.mark.parametrize("is_stored", [False, True], ids=["folder", "store"])
@pytest.mark.parametrize(("old", "new"), [(1, 2), (4, 2), (3, 4)])
def test_a_run_is_the_same_with_another_number_of_shards(tmp_path: Path, old: int, new: int, is_stored: bool) -> None:
    """Each new shard is resumed as any other, with a life after that of the old ones, on this machine and elsewhere."""
    run = a_sharded_run(tmp_path / "run", old, steps=100)
    whole, place = trained_in(run).weights, in_a_store(run) if is_stored else str(run)
    reshard(place, shards=new)
    assert torch.equal(trained_in(place).weights, whole)
    for number in (1, 2):
        folder = tmp_path / f"elsewhere {number}" if is_stored else run
        servers = [resumed(place, folder, one, store=place if is_stored else "") for one in places_of(new)]
        weights = [server.run.weights.flat for server in servers if server.run]
        assert torch.equal(torch.cat(weights), whole)
        assert len({server.run.first_shard for server in servers if server.run}) == 1
        assert [server.lineage.shard for server in servers] == [one or Shard() for one in places_of(new)]


def test_an_old_shard_in_a_store_adds_no_durable_checkpoint_once_it_was_read(tmp_path: Path) -> None:
    run = a_sharded_run(tmp_path / "run", 2)
    url = in_a_store(run)
    reshard(url, shards=3)
    for number in (1, 2):
        own = shard_folder(run, number, 2)
        lineage = read_lineage(own)
        assert lineage is not None
        store = CheckpointStore(f"{url}/{own.name}", flag="--checkpoint-dir")
        with pytest.raises(Replaced):
            store.put(own / CHECKPOINTS / checkpoint_name(0, 1), lineage, best=False, milestone="", keep=5)


def test_a_checkpoint_of_another_format_is_not_passed_over_and_a_damaged_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_sharded_run(tmp_path / "run", 1)
    url = in_a_store(run)
    newest = f"{url}/lives/000000001/{checkpoint_name(100, 1)}"
    with fsspec.open(newest, "wb") as file:
        file.write(b"damaged")
    reshard(url, shards=2)
    assert f"{newest}: is damaged" in (said := capsys.readouterr().err)
    assert "trying the one before it" in said
    path = run / CHECKPOINTS / checkpoint_name(100, 1)
    save_file({}, path, {"format": "ps-rl checkpoint 99"})
    with fsspec.open(newest, "wb") as file:
        file.write(path.read_bytes())
    with pytest.raises(OtherFormat, match=f"^{newest}: "):
        reshard(url, shards=4)


def test_new_shards_have_the_settings_of_the_old_shard_1_and_no_best_checkpoint(tmp_path: Path) -> None:
    """Another one may have been down when the run was adjusted, and be ahead of it in steps."""
    run = a_sharded_run(tmp_path / "run", 2, best_saved=20.0)
    path = run / "shard-1-of-2" / CHECKPOINTS / checkpoint_name(0, 1)
    vectors, record = read_checkpoint(path)
    adjusted = msgspec.structs.replace(record, run=a_run(schedule={"learning_rate": 0.5}).to_dict())
    write_checkpoint(path, vectors, adjusted)
    reshard(str(run), shards=3)
    _, new = read_checkpoint(run / "shard-2-of-3" / CHECKPOINTS / checkpoint_name(0, 1))
    assert new.run["schedule"]["learning_rate"] == 0.5
    assert (new.progress.best_mean, new.progress.best_saved) == (20.0, None)


def test_what_cannot_be_cut_is_named(tmp_path: Path) -> None:
    run = a_sharded_run(tmp_path / "run", 2)
    locks = FolderLocks([run / "shard-2-of-2"])
    try:
        with pytest.raises(SettingsError, match="shard-2-of-2: a ps-server keeps its shard there"):
            reshard(str(run), shards=4)
    finally:
        locks.close()
    with pytest.raises(SettingsError, match="is the folder of shard 2/2 alone; give that of its run"):
        reshard(str(run / "shard-2-of-2"), shards=4)
    with pytest.raises(SettingsError, match="--shards 0: is not 1 to 64"):
        reshard(str(run), shards=0)
    for place in (str(tmp_path / "nothing"), f"memory://{secrets.token_hex(8)}/run"):
        with pytest.raises(CheckpointError, match=f"^{place}: holds no run, or not all of its shards"):
            reshard(place, shards=2)
    (run / "shard-1-of-2" / STORE).write_text("s3://bucket/run\n")
    with pytest.raises(SettingsError, match="kept in s3://bucket/run too, where newer ones may be; name that"):
        reshard(str(run), shards=4)
