"""The messages about a run to a page: from its folder, and from its server."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ps_common.errors import PsRlError, SettingsError
from ps_common.protocol.messages import Event
from ps_common.protocol.status import STALENESS_BOUNDS, Status
from ps_common.run_folder.endpoint_file import address_of
from ps_common.run_folder.run_rows import EventRow
from ps_rl.run import Run
from ps_web import run
from ps_web.index import RunIndex
from ps_web.run import WatchedRun
from ps_web.viewers import Viewers
from rl_cluster.failed_run import record_failure

LEAST = {"epoch": 1, "refused": {}, "not_modified": 0, "checkpoint_version": 0, "checkpoint_failures": 0}
ROW = {"time": 1.0, "minutes": 0.1, "global_steps": 100, "mean_return_100": 12.5}


def a_status(**fields: Any) -> Status:
    return Status(**{"phase": "serving", "workers_alive": 0} | LEAST | fields)


def an_event(number: int, *, kind: str = "note", epoch: int = 1) -> EventRow:
    return EventRow(time=0.0, epoch=epoch, number=number, kind=kind, text="so", global_steps=0, minutes=0.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "metrics.jsonl").write_text(json.dumps(ROW) + "\n")
    return tmp_path


def watched(folder: Path | None) -> WatchedRun:
    found = WatchedRun(0, "a-run", Viewers(), folder=folder, servers=(), keys=None)
    asyncio.run(found.read_folder())
    return found


def test_curves_go_on_where_a_standby_has_taken_over_and_the_folder_no_longer_grows(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run.time, "monotonic", lambda: now)
    now = 100.0
    found = watched(folder)
    now += run.STILL_SECONDS / 2
    found._take_status(a_status(global_steps=200))
    assert found.whole()["points"]["global_steps"] == [100], "the folder will have that row"
    now += run.STILL_SECONDS
    found._take_status(a_status(global_steps=300))
    assert found.whole()["points"]["global_steps"] == [100, 300]


def test_commands_to_type_next_import_the_modules_that_the_first_command_named(folder: Path) -> None:
    row = ROW | LEAST | {"phase": "draining", "workers_alive": 0, "checkpoint_version": 7}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    for command, modules in [
        ("rl-cluster --environment mine.games:Maze --import others 'a b' --seed 1", "others 'a b' mine.games"),
        ("rl-cluster --environment ALE/Pong-v5 --workers 2", ""),
        ("rl-cluster --name 'torn", ""),
    ]:
        (folder / "command").write_text(command)
        imports, whose = f" --import {modules}" if modules else "", int(bool(modules))
        said = watched(folder).whole()["next"]
        assert ["these run code that the run's folder names: " in said[0]] == [bool(modules)]
        assert said[1 + whose].endswith(f"rl-eval --checkpoint {folder}{imports}")
        live = watched(folder)
        live.link.address = "host:5555"
        live._take_status(a_status(global_steps=200))
        said, command = live.whole()["next"][whose:]
        assert (said, command) == ("# more workers, on any machine:", f"rl-cluster --server host:5555{imports}")
        live.link.address = "127.0.0.1:5555"
        said, command = live.whole()["next"][whose:]
        assert said == "# more workers, on this machine; for those of others start the run with --host 0.0.0.0:"
        assert command == f"rl-cluster --server 127.0.0.1:5555{imports}"
    (folder / "command").write_text("rl-cluster --environment __main__:Maze")
    assert watched(folder).whole()["next"] == [], "no command has the class of a notebook"


def test_a_run_has_failed_for_the_page_the_list_and_python_alike(folder: Path) -> None:
    why = "worker-0 died 3 times in a row: ValueError: boom"
    row = ROW | LEAST | {"phase": "serving", "workers_alive": 1}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    record_failure(folder, why)
    sent, (line,) = watched(folder).whole(), RunIndex([folder], (), Viewers()).lines()
    assert (sent["failed"], sent["ended"]) == (line.failed, line.ended)
    assert (line.failed, line.ended) == (True, f"failed after 0.1 minutes and 100 steps: {why}")
    assert sent["events"][-1].kind == "end"
    opened = Run.open(folder)
    assert f", failed: {why}" in repr(opened)
    with pytest.raises(PsRlError, match="ValueError: boom"):
        opened.wait()
    with pytest.raises(SettingsError, match=r"no server serves a run there now .*failed after 0\.1 minutes.*boom"):
        address_of("--server", str(folder))


def test_an_event_of_the_folder_and_of_the_server_is_sent_once(folder: Path) -> None:
    path = folder / "events.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(an_event(number)) + b"\n" for number in (1, 2)))
    found = watched(folder)
    for epoch, number in ((1, 2), (1, 3), (2, 1)):
        event = Event(number=number, kind="note", text="so", global_steps=0, minutes=0.0)
        found._take_event(epoch, event)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(an_event(3)) + b"\n")
    asyncio.run(found.read_folder())
    events = found.whole()["events"]
    assert [(event.epoch, event.number) for event in events] == [(1, 1), (1, 2), (1, 3), (2, 1)]


def test_another_run_at_the_same_address_begins_with_nothing_of_the_one_before() -> None:
    found, event = watched(None), Event(number=1, kind="note", text="so", global_steps=0, minutes=0.0)
    subscriber = found.link._subscriber
    for number in (1, 2):
        found._take_event(1, msgspec.structs.replace(event, number=number))
    for steps, run_id in ((100, "first"), (200, "first"), (0, "")):
        found._take_status(a_status(global_steps=steps, run_id=run_id))
    assert len(found.whole()["events"]) == 2
    assert found.link._subscriber is subscriber
    found._take_status(a_status(global_steps=300, run_id="second"))
    found._take_event(1, event)
    sent = found.whole()
    assert (len(sent["events"]), sent["points"]["global_steps"]) == (1, [300])
    assert found.link._subscriber is not subscriber


def test_a_run_that_no_page_shows_any_more_is_not_called_live(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "EVERY_SECONDS", 0.01)
    viewers, empty = Viewers(), [0] * len(STALENESS_BOUNDS)
    found = WatchedRun(0, "a-run", viewers, folder=folder, servers=["host:5555"], keys=None)

    async def check() -> None:
        has_begun = asyncio.Event()
        monkeypatch.setattr(found.link, "_addresses", lambda: has_begun.set() or [])
        page = viewers.open([0])
        following = asyncio.create_task(found.watch())
        await asyncio.wait_for(has_begun.wait(), 20)
        found.link.address, found.link.is_asking = "host:5555", False
        for count in (100, 200):
            found._take_status(a_status(staleness_counts=(count, *empty)))
        viewers.leave(page)
        async with asyncio.timeout(20):
            while found.status is not None:
                await asyncio.sleep(0.01)
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    asyncio.run(check())
    sent = found.whole()
    assert (sent["status"], sent["asking"]) == (None, True)
    assert (sent["staleness"]["all"][0], sent["staleness"]["recent"]) == (200, [])
    found._take_status(a_status(staleness_counts=(900, *empty)))
    assert found.whole()["staleness"]["recent"] == [], "the first of a new minute"
