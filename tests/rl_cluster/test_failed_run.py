"""The end that is written into the records of a run whose server can write nothing any more."""

from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from ps_common.protocol.status import how_it_ended
from ps_common.run_folder.folder_lock import FolderLocks
from ps_common.run_folder.paths import ENDPOINT, EVENTS, METRICS
from ps_common.run_folder.run_rows import EventRow, MetricsRow, last_row, rows_in
from rl_cluster.failed_run import record_failure
from tests.ps_server.records.test_metrics import a_status

WHY = "worker-0 died 3 times in a row: ValueError: the line is too long"


def write_row(folder: Path, *, torn: bool = False, **changes: object) -> MetricsRow:
    fields = msgspec.structs.asdict(a_status(global_steps=700, minutes=2.0, epoch=3)) | {"time": 5.0} | changes
    row = msgspec.convert(fields, MetricsRow, from_attributes=True)
    (folder / METRICS).write_bytes(msgspec.json.encode(row) + b"\n" + b'{"phase": "ser' * torn)
    return row


@pytest.mark.parametrize("torn", [False, True], ids=["whole", "with half a line, as a killed writer leaves it"])
def test_a_failure_is_the_last_row_and_the_last_event(tmp_path: Path, torn: bool) -> None:
    row = write_row(tmp_path, torn=torn)
    (tmp_path / ENDPOINT).write_text("127.0.0.1:5555\n")
    record_failure(tmp_path, WHY)
    last, event = last_row(tmp_path / METRICS, MetricsRow), last_row(tmp_path / EVENTS, EventRow)
    assert last is not None
    assert event is not None
    assert how_it_ended(last) == f"failed after 2.0 minutes and 700 steps: {WHY}"
    changed = {"time": last.time, "ending": WHY, "failed": True, "workers_alive": 0}
    assert last == msgspec.structs.replace(row, **changed), "nothing else of the run changes"
    assert (event.kind, event.epoch, event.number, event.text) == ("end", 3, 1, f"the run has failed: {WHY}")
    assert not (tmp_path / ENDPOINT).exists(), "nobody is asked any more"
    assert len(list(rows_in(tmp_path / METRICS, MetricsRow))) == 2


def test_a_run_that_has_no_row_yet_has_failed_all_the_same(tmp_path: Path) -> None:
    record_failure(tmp_path, WHY)
    last = last_row(tmp_path / METRICS, MetricsRow)
    assert last is not None
    assert how_it_ended(last) == f"failed after 0.0 minutes and 0 steps: {WHY}"


def test_an_end_is_recorded_once(tmp_path: Path) -> None:
    """The server has recorded it, or this is the second call."""
    write_row(tmp_path, failed=True, ending="as the server knew it")
    before = (tmp_path / METRICS).read_bytes()
    record_failure(tmp_path, WHY)
    assert (tmp_path / METRICS).read_bytes() == before
    assert not (tmp_path / EVENTS).exists()


def test_nothing_is_written_into_the_records_of_a_server_that_lives(tmp_path: Path) -> None:
    write_row(tmp_path)
    before = (tmp_path / METRICS).read_bytes()
    with closing(FolderLocks([tmp_path])):
        record_failure(tmp_path, WHY)
    assert (tmp_path / METRICS).read_bytes() == before
