"""Which of two servers of one run may start, by its folder and the status of the other."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
import torch

from ps_common.errors import Fenced, ServerUnreachable, SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.protocol.lineage import Lineage, Shard
from ps_common.protocol.messages import StatusReply
from ps_common.protocol.status import Status
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.run_folder.checkpoint_file import write_checkpoint
from ps_common.run_folder.paths import CHECKPOINTS, EVENTS, LOCK, METRICS, REPLACED, checkpoint_name
from ps_common.run_folder.run_rows import EventRow
from ps_common.run_folder.trained import trained_in
from ps_common.settings.run_spec import RunSpec
from ps_server import starting
from ps_server.machine.parameter_server import ParameterServer
from ps_server.settings import ServerSettings
from ps_server.standby.standby import Standby
from ps_server.state.training_run import TrainingRun
from ps_server.storage.earlier_life import read_lineage, write_lineage
from ps_server.storage.run_storage import RunStorage
from tests.ps_server.records.test_metrics import a_status
from tests.ps_server.transcripts import Transcript, a_run
from tests.rows import row

P, S = "127.0.0.1:5", "127.0.0.1:6"
FIRST = Lineage.begun("0123456789abcdef", secret="s", draw=1)
TAKEN_OVER = FIRST.promoted(draw=2)
SCHEMA = Schema([TensorSpec("w", (2,))])
ZOO = Path(__file__).parents[2] / "zoo" / "cartpole-a3c"
OTHER = Lineage.begun("fedcba9876543210", secret="s", draw=1).promoted(draw=1)


class Others:
    """The status of other servers, by address; one without a status does not reply."""

    def __init__(self) -> None:
        self._said: dict[str, Status] = {}

    def say(self, address: str, lineage: Lineage, phase: str = "serving") -> None:
        self._said[address] = a_status(phase=phase, run_id=lineage.run_id, epoch=lineage.epoch)

    def fall_silent(self) -> None:
        self._said.clear()

    def status_of(self, address: str, *_: object, **__: object) -> StatusReply:
        if address not in self._said:
            raise ServerUnreachable(f"{address} does not answer")
        return StatusReply(request=1, status=self._said[address], run={}, schema=())


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> Others:
    others = Others()
    monkeypatch.setattr(starting, "status_of", others.status_of)
    return others


def a_folder(
    folder: Path,
    lineage: Lineage,
    *,
    standby: str = "",
    primary: str = "",
    adjusted: Mapping[str, Any] = MappingProxyType({}),
    spec: RunSpec | None = None,
) -> Path:
    """A run folder with one checkpoint."""
    run = TrainingRun(spec or a_run(), lineage)
    schema = SCHEMA.of_shard(lineage.shard.number, lineage.shard.of)
    run.seed(schema, torch.zeros(schema.size))
    run.standby, run.primary = standby, primary
    run.adjust(adjusted, by="me", checkpoint_seconds=30.0, now=0.0)
    checkpoints = folder / CHECKPOINTS
    checkpoints.mkdir(parents=True)
    write_checkpoint(checkpoints / checkpoint_name(0, 1), run.weights.vectors(), run.record(now=0.0))
    write_lineage(folder, lineage)
    return folder


def started(folder: Path, *flags: str) -> ParameterServer | Standby:
    parsed = parse_with_run(ServerSettings, flags, prog="ps-server")
    storage = RunStorage(folder, checkpoints=None, may_hold_a_run=True)
    try:
        return starting.machine_for(parsed, storage, keys=None, now=0.0)
    finally:
        storage.close()


def resumed(folder: Path, *flags: str) -> ParameterServer:
    server = started(folder, "--resume", str(folder), *flags)
    assert isinstance(server, ParameterServer)
    return server


def test_a_primary_whose_standby_serves_its_run_refuses_and_remembers_that(tmp_path: Path, others: Others) -> None:
    folder = a_folder(tmp_path / "p", FIRST, standby=S)
    others.say(S, TAKEN_OVER)
    with pytest.raises(Fenced, match=f"{S} serves this run now.*--standby-of {S}.*--take-back"):
        resumed(folder)
    others.fall_silent()
    with pytest.raises(Fenced, match=f"{S} serves this run now"):
        resumed(folder)


@pytest.mark.parametrize("is_known", [True, False])
def test_the_user_may_take_a_run_back_above_the_epoch_of_who_has_it(
    tmp_path: Path, others: Others, is_known: bool
) -> None:
    folder = a_folder(tmp_path / "p", FIRST, standby=S)
    successor = TAKEN_OVER.resumed(draw=3)
    if is_known:
        write_lineage(folder, FIRST.replaced(S, epoch=successor.epoch))
    server = resumed(folder, "--take-back")
    assert server.epoch > successor.epoch
    assert resumed(folder).epoch > server.epoch, "nobody has replaced it since"


def test_a_standby_in_the_folder_of_what_it_took_over_is_its_server(tmp_path: Path, others: Others) -> None:
    folder = a_folder(tmp_path / "s", TAKEN_OVER, primary=P)
    others.say(P, FIRST.resumed(draw=1))
    machine = started(folder, "--standby-of", P)
    assert isinstance(machine, Standby)
    assert machine.server is not None
    assert machine.server.epoch > TAKEN_OVER.epoch
    assert read_lineage(folder) == machine.server.lineage


@pytest.mark.parametrize("standby", ["", P])
def test_a_standby_whose_primary_has_the_run_back_follows_and_keeps_the_newest_of_its_older_states(
    tmp_path: Path, others: Others, standby: str
) -> None:
    """Whoever took the run back may have been its standby meanwhile."""
    newest = TAKEN_OVER
    for _ in range(2):
        folder = a_folder(tmp_path / "s", newest, primary=P, standby=standby)
        newest = newest.promoted(draw=1)
        others.say(P, newest)
        machine = started(folder, "--standby-of", P)
        assert isinstance(machine, Standby)
        assert machine.server is None
        assert not list((folder / CHECKPOINTS).glob("*.safetensors"))
        (folder / CHECKPOINTS / LOCK).unlink()
        (folder / CHECKPOINTS).rmdir()
    aside = folder / REPLACED
    with pytest.raises(Fenced, match=f"{P} serves this run now"):
        resumed(aside)
    assert resumed(aside, "--take-back").epoch > newest.epoch


@pytest.mark.parametrize("said", [None, "standby", "fenced"])
def test_a_standby_that_a_third_server_has_replaced_names_that_one_and_follows_nobody(
    tmp_path: Path, others: Others, said: str | None
) -> None:
    """The primary of before is gone, follows the third server itself, or is about to end."""
    folder = a_folder(tmp_path / "s", TAKEN_OVER, primary=P)
    third = "127.0.0.1:7"
    write_lineage(folder, TAKEN_OVER.replaced(third, epoch=TAKEN_OVER.promoted(draw=3).epoch))
    if said is not None:
        others.say(P, TAKEN_OVER.promoted(draw=3) if said == "standby" else FIRST, said)
    with pytest.raises(Fenced, match=f"^{third} serves this run now.*--standby-of {third}"):
        started(folder, "--standby-of", P)
    assert list((folder / CHECKPOINTS).glob("*.safetensors")), "its state stays where it is"


def test_a_standby_that_was_replaced_it_knows_not_by_whom_follows_the_primary_that_serves_the_run(
    tmp_path: Path, others: Others
) -> None:
    folder = a_folder(tmp_path / "s", TAKEN_OVER, primary=P)
    back = TAKEN_OVER.promoted(draw=3)
    write_lineage(folder, TAKEN_OVER.replaced("", epoch=back.epoch))
    others.say(P, back)
    machine = started(folder, "--standby-of", P)
    assert isinstance(machine, Standby)
    assert machine.server is None


def test_a_server_that_ended_before_its_first_checkpoint_goes_on_with_its_run(tmp_path: Path) -> None:
    write_lineage(tmp_path, FIRST)
    server = started(tmp_path)
    assert isinstance(server, ParameterServer)
    assert (server.lineage.run_id, server.lineage.epoch > FIRST.epoch) == (FIRST.run_id, True)


@pytest.mark.parametrize(
    ("name", "kind", "is_gone"), [(EVENTS, "checkpoint", True), (EVENTS, "note", False), (METRICS, "", True)]
)
def test_a_run_whose_checkpoints_are_gone_is_another_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, kind: str, is_gone: bool
) -> None:
    write_lineage(tmp_path, FIRST)
    row = EventRow(time=1.0, epoch=1, number=1, kind=kind, text="", global_steps=0, minutes=0.0)
    (tmp_path / name).write_bytes(msgspec.json.encode(row) + b"\n")
    server = started(tmp_path)
    assert isinstance(server, ParameterServer)
    assert (server.lineage.run_id != FIRST.run_id) is is_gone
    assert (f"the checkpoints of run {FIRST.run_id} are gone" in caplog.text) is is_gone


def begun_with(server: ParameterServer | Standby, schema: Schema) -> list[float]:
    """The weights after a worker has brought nothing but fives."""
    assert isinstance(server, ParameterServer)
    worker = Transcript()
    worker.machine = server
    worker.hello("a")
    worker.seed("a", [5] * schema.size, schema)
    assert server.run is not None
    return server.run.weights.flat.tolist()


def test_a_run_starts_from_what_the_flag_names(tmp_path: Path) -> None:
    """A policy is one of many kinds of source that `trained_in` reads. A resume reads nothing."""
    before, run = a_folder(tmp_path / "before", FIRST), tmp_path / "run"
    for place, schema, weights in [
        (before, SCHEMA, [0.0, 0.0]),
        (before / CHECKPOINTS / checkpoint_name(0, 1), SCHEMA, [0.0, 0.0]),
        (ZOO, (policy := trained_in(ZOO)).schema, policy.weights.tolist()),
    ]:
        with row(place):
            run = tmp_path / place.name
            run.mkdir(exist_ok=True)
            for flags in (["--environment", "none"], []):  # without, the first worker decides the run
                server = started(run, "--start-from", str(place), *flags)
                assert begun_with(server, schema) == weights
                assert server.run is not None
                assert server.run.spec.start_from == str(place)
    folder = a_folder(tmp_path / "resumed", FIRST, spec=a_run(start_from="gone"))
    spec = resumed(folder).run
    assert spec is not None
    assert spec.spec.start_from == "gone"
    with pytest.raises(SettingsError, match=r"--start-from .*: a resumed run keeps gone"):
        resumed(folder, "--start-from", str(before))


def test_what_cannot_be_started_from_is_named_with_its_flag(tmp_path: Path) -> None:
    text, lacking, part = tmp_path / "text", tmp_path / "lacking", tmp_path / "before" / "shard-1-of-2"
    text.write_text("no weights")
    lacking.mkdir()
    a_folder(part, msgspec.structs.replace(FIRST, shard=Shard(number=1, addresses=("a:1", "b:1"))))
    for place, words in [
        (tmp_path / "nowhere", "there is no such file or folder"),
        (text, "is damaged, because it cannot be read"),
        (lacking, "it is not the folder of a run"),
        (part, "is the folder of shard 1/2 alone"),
        (part / CHECKPOINTS / checkpoint_name(0, 1), "is of one of 2 shards alone"),
        ("s3:/bucket", "an object store is s3://bucket"),
        ("ä", "must be a path in ASCII characters"),
    ]:
        with row(place):
            with pytest.raises(SettingsError, match="--start-from") as refused:
                started(lacking, "--start-from", str(place))
            assert words in str(refused.value)
            assert read_lineage(lacking) is None, "nothing is begun"
