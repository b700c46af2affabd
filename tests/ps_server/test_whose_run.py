"""Whose run a folder holds: that of a server that lives, of a successor, of nobody, and of a fork."""

import shutil
from pathlib import Path

import msgspec
import pytest

from ps_common.errors import Fenced, SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.protocol.lineage import Lineage, Shard
from ps_common.run_folder.checkpoint_file import read_checkpoint, write_checkpoint
from ps_common.run_folder.checkpoint_folder import newest_first
from ps_common.run_folder.endpoint_file import write_endpoint
from ps_common.run_folder.paths import CHECKPOINTS, ENDPOINT, LOCK, REPLACED, checkpoint_name
from ps_server import starting
from ps_server.settings import ServerSettings
from ps_server.storage.earlier_life import read_lineage, write_lineage
from ps_server.storage.run_storage import RunStorage
from tests.ps_server.test_starting import FIRST, OTHER, TAKEN_OVER, Others, P, S, a_folder, others, resumed
from tests.ps_server.transcripts import Transcript

__all__ = ["others"]


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != LOCK}


def followed(folder: Path) -> Path:
    """The folder of a primary whose standby followed to the end."""
    a_folder(folder, FIRST, standby=S)
    path = newest_first(folder / CHECKPOINTS)[0]
    vectors, record = read_checkpoint(path)
    write_checkpoint(path, vectors, msgspec.structs.replace(record, is_followed=True))
    return folder


# -- a copy of the folder of a live server ----------------------------------------------------------------------------


@pytest.mark.parametrize(("lineage", "phase"), [(FIRST, "serving"), (FIRST, "empty"), (TAKEN_OVER, "serving")])
def test_a_copy_of_the_folder_of_a_live_run_is_not_served(
    tmp_path: Path, others: Others, lineage: Lineage, phase: str
) -> None:
    copy = shutil.copytree(a_folder(tmp_path / "live", FIRST), tmp_path / "copy")
    write_endpoint(copy / ENDPOINT, P)
    others.say(P, lineage, phase)
    before = files_in(copy)
    with pytest.raises(SettingsError, match=f"copy: is a copy of the folder of run {FIRST.run_id}, which {P}.*--fork"):
        resumed(copy)
    assert files_in(copy) == before
    others.fall_silent()
    assert resumed(copy).lineage.run_id == FIRST.run_id, "the server there was killed, or has ended"


@pytest.mark.parametrize(("lineage", "phase"), [(OTHER, "serving"), (FIRST, "standby")])
def test_another_server_at_the_address_of_the_one_before_keeps_nobody_from_resuming(
    tmp_path: Path, others: Others, lineage: Lineage, phase: str
) -> None:
    folder = a_folder(tmp_path / "p", FIRST)
    write_endpoint(folder / ENDPOINT, P)
    others.say(P, lineage, phase)
    assert resumed(folder).lineage.run_id == FIRST.run_id


# -- a fork -----------------------------------------------------------------------------------------------------------


def test_a_fork_is_a_new_run_with_the_same_state_and_without_workers(tmp_path: Path, others: Others) -> None:
    folder = followed(tmp_path / "run")
    worker = Transcript()
    worker.machine = resumed(folder, "--take-back")
    worker.hello("a")
    before = read_checkpoint(newest_first(folder / CHECKPOINTS)[0])[1]
    write_endpoint(folder / ENDPOINT, P)
    others.say(P, FIRST)
    server = resumed(folder, "--fork", "--learning-rate", "0.25")
    assert server.run is not None
    lineage, run = server.lineage, server.run
    assert lineage.run_id != before.lineage.run_id
    assert lineage.secret != before.lineage.secret
    assert not before.lineage.proves(lineage.epoch, lineage.proof)
    assert (run.first_shard, run.standby, run.primary, run.ledger.accounts) == (lineage.run_id, "", "", {})
    assert (server.version, run.progress.global_steps) == (before.version, before.progress.global_steps)
    assert run.learning_rate == 0.25
    assert read_lineage(folder) == lineage
    write_endpoint(folder / ENDPOINT, S)
    again = resumed(folder)
    assert (again.lineage.run_id, again.epoch > lineage.epoch) == (lineage.run_id, True)


def test_no_life_of_a_fork_goes_back_to_a_checkpoint_of_the_run_before(tmp_path: Path, others: Others) -> None:
    folder = a_folder(tmp_path / "run", FIRST)
    newest = newest_first(folder / CHECKPOINTS)[0]
    shutil.copy(newest, newest.with_name(checkpoint_name(5, 1)))
    fork = resumed(folder, "--fork")
    assert [read_checkpoint(path)[1].lineage.run_id for path in newest_first(folder / CHECKPOINTS)] == [
        fork.lineage.run_id
    ]


def test_what_cannot_be_forked_is_named(tmp_path: Path) -> None:
    for flags in ({"fork": True}, {"fork": True, "resume": "s3://bucket/run"}):
        with pytest.raises(SettingsError, match="--fork goes with --resume RUN_DIR"):
            ServerSettings(**flags)
    part = a_folder(
        tmp_path / "run" / "shard-1-of-2", msgspec.structs.replace(FIRST, shard=Shard(addresses=("a:1", "b:1")))
    )
    with pytest.raises(SettingsError, match="one of 2 shards; give the folder of the run"):
        resumed(part, "--fork")


# -- a primary whose successor is away --------------------------------------------------------------------------------


def test_a_primary_whose_standby_followed_to_the_end_asks_before_it_serves_a_state_that_may_be_old(
    tmp_path: Path, others: Others
) -> None:
    folder = followed(tmp_path / "p")
    before = files_in(folder)
    with pytest.raises(SettingsError, match=f"{S} followed this server.*does not reply.*step 0.*--take-back"):
        resumed(folder)
    assert files_in(folder) == before
    others.say(S, FIRST, "standby")
    assert resumed(folder).lineage.run_id == FIRST.run_id, "it was not promoted"


# -- the first command again ------------------------------------------------------------------------------------------


def successor_of(folder: Path, *flags: str) -> str:
    parsed = parse_with_run(ServerSettings, ("--run-dir", str(folder), *flags), prog="ps-server")
    storage = RunStorage(folder, checkpoints=None, may_hold_a_run=True)
    try:
        return starting.successor_of(parsed.program, storage, keys=None)
    finally:
        storage.close()


@pytest.mark.parametrize("knows", ["by its standby", "by its lineage", "by its primary"])
def test_the_folder_of_a_former_primary_is_put_aside_for_the_server_that_has_its_run(
    knows: str, tmp_path: Path, others: Others
) -> None:
    how = {"by its standby": {"standby": S}, "by its primary": {"primary": S}, "by its lineage": {}}[knows]
    folder = a_folder(tmp_path / "p", FIRST, **how)
    if knows == "by its lineage":
        write_lineage(folder, FIRST.replaced(S, epoch=TAKEN_OVER.epoch))
    others.say(S, TAKEN_OVER)
    assert successor_of(folder) == S
    assert newest_first(folder / CHECKPOINTS) == []
    with (
        pytest.raises(Fenced, match=f"{S} serves this run now") if knows != "by its primary" else pytest.raises(Fenced)
    ):
        resumed(folder / REPLACED)


@pytest.mark.parametrize(("lineage", "phase"), [(FIRST, "standby"), (OTHER, "serving"), (FIRST, "serving"), (None, "")])
def test_a_folder_whose_run_nobody_else_has_is_no_place_for_a_new_run(
    lineage: Lineage | None, phase: str, tmp_path: Path, others: Others
) -> None:
    folder = a_folder(tmp_path / "p", FIRST, standby=S)
    if lineage is not None:
        others.say(S, lineage, phase)
    before = files_in(folder)
    with pytest.raises(SettingsError, match="holds the checkpoints of a run; take another folder, or --resume"):
        successor_of(folder)
    assert files_in(folder) == before
