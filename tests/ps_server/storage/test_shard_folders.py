"""The folder of a shard: named by that of its run or by itself, and never taken for that of the whole run."""

import secrets
from pathlib import Path

import msgspec
import pytest
import torch

from ps_common.errors import CheckpointError, SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.protocol.lineage import Lineage, Shard
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.run_folder.paths import CHECKPOINTS, checkpoint_name, shard_folder
from ps_common.run_folder.trained import trained_as, trained_in
from ps_common.settings.run_settings import run_for_peers
from ps_rl.run import Run
from ps_server.machine.parameter_server import ParameterServer
from ps_server.settings import ServerSettings
from ps_server.starting import machine_for
from ps_server.state.training_run import TrainingRun
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.earlier_life import read_lineage, write_lineage
from ps_server.storage.run_storage import RunStorage
from ps_server.storage.shard_folders import check_no_others, folder_of_shard
from rl_cluster.settings import ClusterSettings
from tests.ps_server.transcripts import a_run

WHOLE = Schema([TensorSpec("w", (8,))])


def place_of(number: int, of: int) -> Shard:
    return Shard(number=number, addresses=tuple(f"127.0.0.1:{5000 + one}" for one in range(of)))


def a_checkpoint(
    folder: Path,
    number: int,
    of: int,
    *,
    steps: int,
    weight: float,
    minutes: float = 0.0,
    best_saved: float | None = None,
) -> None:
    """The first life of a shard has this checkpoint, whose weights are all `weight`."""
    lineage = Lineage.begun(f"{number:016x}", secret="s", draw=1, shard=place_of(number, of))
    run = TrainingRun(a_run(), lineage)
    run.first_shard = f"{1:016x}"
    schema = WHOLE.of_shard(number, of)
    run.seed(schema, torch.full((schema.size,), weight))
    run.progress.global_steps = run.progress.updates = steps
    run.progress.best_mean = run.progress.best_saved = best_saved
    record = run.record(now=0.0)
    record = msgspec.structs.replace(record, progress=msgspec.structs.replace(record.progress, minutes=minutes))
    path = shard_folder(folder, number, of) / CHECKPOINTS / checkpoint_name(steps, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint(path, run.weights.vectors(), record)
    write_lineage(path.parent.parent, lineage)


def a_sharded_run(folder: Path, of: int, *, steps: int = 0, best_saved: float | None = None) -> Path:
    """A run with a checkpoint of each of its shards."""
    for number in range(1, of + 1):
        a_checkpoint(folder, number, of, steps=steps, weight=float(number), best_saved=best_saved)
    return folder


def in_a_store(run: Path) -> str:
    """The URL of a store with all that the folder of a run holds."""
    url = f"memory://{secrets.token_hex(8)}/run"
    for path in run.glob(f"**/{CHECKPOINTS}/*.safetensors"):
        folder = path.parent.parent
        lineage = read_lineage(folder)
        assert lineage is not None
        below = "" if folder == run else f"/{folder.name}"
        CheckpointStore(url + below, flag="--checkpoint-dir").put(path, lineage, best=True, milestone="", keep=5)
    return url


def test_shards_in_a_store_are_played_as_one(tmp_path: Path) -> None:
    url = in_a_store(a_sharded_run(a_sharded_run(tmp_path / "run", 2), 4, steps=100))
    trained = trained_in(url)
    assert trained.weights.tolist() == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0], "of the newest set"
    assert trained.origin == f"{url}, 4 shards, step 100"
    with pytest.raises(CheckpointError, match="is of one of 4 shards alone"):
        trained_in(f"{url}/shard-2-of-4")


def test_whoever_needs_the_whole_run_refuses_the_folder_of_a_shard_with_that_of_the_run(tmp_path: Path) -> None:
    run = a_sharded_run(tmp_path / "run", 2)
    own = run / "shard-2-of-2"
    said = f"{own}: is the folder of shard 2/2 alone; give that of its run, {run}$"
    with pytest.raises(SettingsError, match=f"^--checkpoint {said}"):
        trained_in(own)
    with pytest.raises(SettingsError, match=f"^--resume {said}"):
        ClusterSettings(resume=own)
    with pytest.raises(SettingsError, match=f"^{said}"):
        Run.open(own)
    with pytest.raises(CheckpointError, match="is of one of 2 shards alone; give the folder of their run"):
        trained_as(own / CHECKPOINTS / checkpoint_name(0, 1))
    assert trained_in(run).weights.tolist() == [1.0] * 4 + [2.0] * 4


def resumed(given: str, folder: Path, place: Shard | None, *, store: str = "") -> ParameterServer:
    """The server that `ps-server --resume GIVEN` begins, with this folder; `store`: where its checkpoints are too."""
    where = ["--shard", f"{place.number}/{place.of}", "--shards", *place.addresses] if place else []
    where += ["--checkpoint-dir", store] if store not in ("", given) else []
    parsed = parse_with_run(ServerSettings, ["--resume", given, *where], prog="ps-server")
    kept = CheckpointStore(parsed.program.store_flag[1], flag="--resume") if parsed.program.store_flag else None
    folder.mkdir(exist_ok=True)
    own = folder_of_shard(Path(given) if parsed.program.resumed_folder else folder, place)
    storage = RunStorage(own, checkpoints=None, may_hold_a_run=True, store=kept)
    try:
        server = machine_for(parsed, storage, keys=None, now=0.0)
    finally:
        storage.close()
    assert isinstance(server, ParameterServer)
    return server


@pytest.mark.parametrize("place", [place_of(1, 2), place_of(2, 4), place_of(1, 1)])
def test_the_folder_of_another_shard_is_refused_with_the_folder_of_the_run(tmp_path: Path, place: Shard) -> None:
    run = a_sharded_run(tmp_path / "run", 2)
    with pytest.raises(SettingsError, match=f"is the folder of shard 2/2; for --shard {place.number}/.*{run}$"):
        folder_of_shard(run / "shard-2-of-2", place)


def test_a_new_run_does_not_lie_beside_one_with_another_number_of_shards(tmp_path: Path) -> None:
    """Of the checkpoints there the newest count: a new run was shadowed by the old one, or the other way round."""
    run = a_sharded_run(tmp_path / "run", 2)
    for beside in (run, run / "shard-1-of-3"):
        with pytest.raises(SettingsError, match=f"{run}: holds the checkpoints of a run, in shard-.-of-2; .*--resume"):
            check_no_others(beside, None)
    check_no_others(run / "shard-2-of-2", None)  # each shard begins with its own start
    whole = a_sharded_run(tmp_path / "a whole", 1)
    with pytest.raises(SettingsError, match=f"{whole}: holds the checkpoints of a run, in a whole.*--resume '{whole}'"):
        check_no_others(whole / "shard-1-of-2", None)
    check_no_others(whole, None)


def test_flags_of_a_shard_that_is_resumed_undo_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a setting of the run nor the interval of checkpoints: it has those of shard 1 in a moment."""
    run = a_sharded_run(tmp_path / "run", 2)
    path = run / "shard-2-of-2" / CHECKPOINTS / checkpoint_name(0, 1)
    vectors, record = read_checkpoint(path)
    adjusted = msgspec.structs.replace(record.adjustments, version=1, checkpoint_seconds=7.0)
    write_checkpoint(path, vectors, msgspec.structs.replace(record, adjustments=adjusted))
    given = ["--resume", str(run), "--shard", "2/2", "--shards", *place_of(2, 2).addresses]
    flags = [*given, "--checkpoint-seconds", "9", "--learning-rate", "0.5"]
    storage = RunStorage(run / "shard-2-of-2", checkpoints=None, may_hold_a_run=True)
    try:
        server = machine_for(parse_with_run(ServerSettings, flags, prog="ps-server"), storage, keys=None, now=0.0)
    finally:
        storage.close()
    assert isinstance(server, ParameterServer)
    assert server.run is not None
    assert server.run.adjustments == adjusted
    assert run_for_peers(server.run.spec) == record.run
    assert "by a flag" not in caplog.text


@pytest.mark.parametrize("is_own", [True, False])
def test_a_shard_that_is_older_than_the_run_is_refused_however_it_is_named(tmp_path: Path, is_own: bool) -> None:
    """The run went on with four shards. The old folder would go back without a word."""
    run = a_sharded_run(a_sharded_run(tmp_path / "run", 2), 4, steps=100)
    command = f"ps-ctl reshard {run} --shards 2"
    for place in (place_of(2, 2), None) if is_own else (place_of(2, 2),):
        with pytest.raises(SettingsError, match=f"newest state is that of shard-1-of-4 … shard-4-of-4.*: {command}$"):
            resumed(str(run / "shard-2-of-2" if is_own else run), run, place)


@pytest.mark.parametrize(("old", "new"), [(2, 4), (4, 2), (2, 1), (1, 2)])
def test_another_number_of_shards_takes_a_command_which_is_named(tmp_path: Path, old: int, new: int) -> None:
    run = a_sharded_run(tmp_path / "run", old)
    url = in_a_store(run)
    place = place_of(1, new) if new > 1 else None
    for where, folder, store in ((str(run), run, ""), (url, tmp_path / "elsewhere", url)):
        with pytest.raises(SettingsError, match=f"ps-ctl reshard {where} --shards {new}$"):
            resumed(where, folder, place, store=store)
    with pytest.raises(CheckpointError, match="there is no run"):
        resumed(f"{url}/elsewhere", tmp_path / "nothing", place, store=f"{url}/elsewhere")
