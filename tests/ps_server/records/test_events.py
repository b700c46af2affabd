"""The events of a run, one line after another; and the settings file when they were adjusted."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from ps_common.protocol.messages import Event
from ps_common.run_folder.paths import EVENTS
from ps_common.run_folder.run_rows import EventRow, rows_in
from ps_common.settings.run_files import SETTINGS
from ps_common.settings.run_spec import RunSpec, Schedule
from ps_server.records.run_records import RunRecords
from ps_server.state.effects import RecordEvent
from tests.ps_server.records.test_metrics import a_status


def happened(number: int, **fields: Any) -> RecordEvent:
    known: dict[str, Any] = {"kind": "note", "text": f"event {number}", "global_steps": 10 * number, "minutes": 0.5}
    return RecordEvent(Event(number=number, **known | fields), epoch=7)


def test_events_are_lines_and_a_resumed_run_goes_on_in_the_same_file(tmp_path: Path) -> None:
    for first in (1, 3):
        records = RunRecords(tmp_path, RunSpec, endpoint="host:5555")
        records.add(happened(first, kind="adjustment", worker_id="w"))
        records.add(happened(first + 1))
        records.close(a_status())
    rows = list(rows_in(tmp_path / EVENTS, EventRow))
    assert [(row.number, row.kind, row.worker_id) for row in rows] == [
        (1, "adjustment", "w"), (2, "note", ""), (3, "adjustment", "w"), (4, "note", "")
    ]  # fmt: skip
    assert {row.epoch for row in rows} == {7}
    assert rows[1].text == "event 2"
    assert all(row.time > 1e9 for row in rows)


def test_the_settings_file_has_what_was_adjusted(tmp_path: Path) -> None:
    spec = RunSpec()
    records = RunRecords(tmp_path, lambda: spec, endpoint="host:5555")
    records.tick(a_status())
    spec = msgspec.structs.replace(spec, schedule=Schedule(learning_rate=0.125))
    records.tick(a_status())
    records.close(a_status())
    assert tomllib.loads((tmp_path / SETTINGS).read_text())["schedule"]["learning_rate"] == 0.125
    assert not list(tmp_path.glob(".*"))
