"""A server that starts from an object store: with an empty folder, with its own, and with one that is outdated."""

import secrets
import shutil
from pathlib import Path

import pytest
import torch

from ps_common.errors import Fenced, Replaced, SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.protocol.lineage import Lineage
from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.paths import BEST, CHECKPOINTS, STORE
from ps_common.run_folder.trained import trained_in
from ps_server import starting
from ps_server.machine.parameter_server import ParameterServer
from ps_server.settings import ServerSettings
from ps_server.storage.checkpoint_store import CheckpointStore
from ps_server.storage.earlier_life import read_lineage, write_lineage
from ps_server.storage.run_storage import RunStorage
from tests.ps_server.test_starting import FIRST, a_folder


@pytest.fixture
def url() -> str:
    return f"memory://{secrets.token_hex(8)}/run"


def started(folder: Path, url: str, *flags: str) -> ParameterServer:
    folder.mkdir(exist_ok=True)
    parsed = parse_with_run(ServerSettings, flags, prog="ps-server")
    store = CheckpointStore(url, flag="--resume")
    storage = RunStorage(folder, checkpoints=None, may_hold_a_run=True, store=store)
    try:
        server = starting.machine_for(parsed, storage, keys=None, now=0.0)
    finally:
        storage.close()
    assert isinstance(server, ParameterServer)
    return server


def stored(tmp_path: Path, url: str, lineage: Lineage = FIRST) -> Path:
    """A run whose folder and store hold the same checkpoint."""
    folder = a_folder(tmp_path / "first", lineage)
    store = CheckpointStore(url, flag="--checkpoint-dir")
    store.put(newest_first(folder / CHECKPOINTS)[0], lineage, best=True, milestone="", keep=5)
    return folder


def test_a_run_goes_on_in_an_empty_folder_with_its_id_its_secret_and_a_later_epoch(tmp_path: Path, url: str) -> None:
    shutil.rmtree(stored(tmp_path, url))
    server = started(tmp_path / "elsewhere", url, "--resume", url)
    assert server.version == 1
    assert server.lineage.run_id == FIRST.run_id
    assert server.lineage.secret == FIRST.secret
    assert server.epoch > FIRST.epoch
    assert read_lineage(tmp_path / "elsewhere") == CheckpointStore(url, flag="--x").lineage() == server.lineage
    again = started(tmp_path / "third", url, "--resume", url)
    assert again.epoch > server.epoch


def test_the_folder_of_the_server_before_is_outdated_when_another_has_served_since(tmp_path: Path, url: str) -> None:
    folder = stored(tmp_path, url)
    elsewhere = started(tmp_path / "elsewhere", url, "--resume", url)
    back = started(folder, url, "--resume", str(folder), "--checkpoint-dir", url)
    assert back.epoch > elsewhere.epoch


def test_a_run_of_a_folder_moves_into_an_empty_store(tmp_path: Path, url: str) -> None:
    folder = a_folder(tmp_path / "first", FIRST)
    started(folder, url, "--resume", str(folder), "--checkpoint-dir", url)
    shutil.rmtree(folder)
    assert started(tmp_path / "elsewhere", url, "--resume", url).version == 1


def test_a_folder_knows_its_store_and_is_not_served_without_it(tmp_path: Path, url: str) -> None:
    """The pushes that only the store had were dropped, and nobody was told."""
    folder = a_folder(tmp_path / "my run", FIRST)
    started(folder, url, "--resume", str(folder), "--checkpoint-dir", url)
    command = f"ps-server --resume '{folder}' --checkpoint-dir {url}"
    said = f"^{folder}: the checkpoints of this run are kept in {url} too.*resume it with {command}, or remove"
    with pytest.raises(SettingsError, match=said):
        RunStorage(folder, checkpoints=None, may_hold_a_run=True)
    started(folder, url, "--resume", str(folder), "--checkpoint-dir", url)
    (folder / STORE).unlink()
    RunStorage(folder, checkpoints=None, may_hold_a_run=True).close()


def test_a_run_that_moves_into_a_store_takes_its_best_checkpoint_along(tmp_path: Path, url: str) -> None:
    folder = a_folder(tmp_path / "first", FIRST)
    (newest,) = newest_first(folder / CHECKPOINTS)
    vectors, record = read_checkpoint(newest)
    write_checkpoint(folder / CHECKPOINTS / BEST, {**vectors, "weights": vectors["weights"] + 7}, record)
    started(folder, url, "--resume", str(folder), "--checkpoint-dir", url)
    shutil.rmtree(folder)
    assert torch.equal(trained_in(url).weights, vectors["weights"] + 7)
    elsewhere = started(tmp_path / "elsewhere", url, "--resume", url)
    assert elsewhere.run is not None
    assert torch.equal(elsewhere.run.weights.flat, vectors["weights"]), "the run goes on from the newest"


def test_a_server_that_was_replaced_stays_fenced_until_the_run_is_taken_back(tmp_path: Path, url: str) -> None:
    folder = stored(tmp_path, url)
    write_lineage(folder, FIRST.replaced("127.0.0.1:6", epoch=FIRST.promoted(draw=1).epoch))
    with pytest.raises(Fenced):
        started(folder, url, "--resume", str(folder), "--checkpoint-dir", url)
    taken = started(folder, url, "--resume", str(folder), "--checkpoint-dir", url, "--take-back")
    assert taken.epoch > FIRST.promoted(draw=1).epoch


def test_of_two_servers_that_resume_at_once_the_slower_one_does_not_serve(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path, url)
    read = CheckpointStore.lineage

    def overtaken(store: CheckpointStore) -> Lineage | None:
        lineage = read(store)
        monkeypatch.setattr(CheckpointStore, "lineage", read)
        started(tmp_path / "quicker", url, "--resume", url)
        return lineage

    monkeypatch.setattr(CheckpointStore, "lineage", overtaken)
    with pytest.raises(Replaced):
        started(tmp_path / "slower", url, "--resume", url)
