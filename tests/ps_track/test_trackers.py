"""
A run at each tracker, read with the tracker's own reader, by the program that `--track` starts.

Weights & Biases has no reader of its offline files in Python any more: its records are read with its own messages.
"""

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from ps_common.errors import SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.protocol.messages import Episode
from ps_common.run_folder import trackers
from ps_common.run_folder.paths import tracker_position
from ps_common.settings.run_spec import RunSpec
from ps_server.records.run_records import RunRecords
from ps_track.cli import Tracking
from ps_track.feed import Feed
from rl_cluster import followers
from rl_cluster.followers import followers_of
from rl_cluster.settings import ClusterSettings
from tests.integration.processes import programs_in, wait_for
from tests.ps_server.records.test_episodes import a_report
from tests.ps_server.records.test_events import happened
from tests.ps_server.records.test_metrics import a_status, a_worker

SPEC = RunSpec(preset="tried", experiment="rates", seed=3)
SETTINGS = {"seed": 3, "algorithm.discount": 0.99, "optimizer.name": "rmsprop"}
BLOCK_BYTES = 32_768  # of a .wandb file, as LevelDB writes its log
ROWS = [(100, 20.0), (200, 40.0)]  # T and return of the first part of the run, and of the resumed one


def a_run(folder: Path, *, part: int) -> None:
    """A part of a run: one game, three events, a row of metrics with the numbers of a worker."""
    steps, score = ROWS[part]
    records = RunRecords(folder, lambda: SPEC, endpoint="host:5555")
    records.add(a_report(global_steps=steps, first_episode=1 + part, episodes=(Episode(score, 9),)))
    for number, kind in enumerate(("note", "warning", "adjustment"), start=1 + 3 * part):
        records.add(happened(number, kind=kind, global_steps=steps))
    status = a_status(
        run_id="0123456789abcdef",
        preset="tried",
        global_steps=steps,
        learning_rate=0.5,
        mean_return_100=score,
        ending="enough" if part else "",
    )
    records.close(msgspec.structs.replace(status, workers=(a_worker("w", entropy=0.25, loss=1.5),)))


def sent(folder: Path, tracker: str, **variables: str) -> str:
    """The last line of the program that sends the run as it stands."""
    command = [sys.executable, "-m", "ps_track", str(folder), "--track", tracker]
    ran = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=200)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip().splitlines()[-1]


def sent_twice(folder: Path, tracker: str, **variables: str) -> None:
    """A run, and then its resumed part."""
    for part in range(2):
        a_run(folder, part=part)
        assert f"{2 * (1 + part)} points sent" in sent(folder, tracker, **variables)


# -- Weights & Biases -------------------------------------------------------------------------------------------------


def wandb_records(file: Path) -> Iterator[Any]:
    """The records of an offline run."""
    from wandb.proto import wandb_internal_pb2

    data, at, whole = file.read_bytes(), 7, b""  # after the header of the file
    while at + 7 <= len(data):
        if (left := BLOCK_BYTES - at % BLOCK_BYTES) < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        whole += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            whole = b""
            yield record


def values_of(items: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): msgspec.json.decode(item.value_json) for item in items}


def test_a_run_is_at_weights_and_biases(tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    sent_twice(tmp_path, "wandb", WANDB_MODE="offline")
    files = sorted(
        tmp_path.glob("wandb/offline-run-*/run-0123456789abcdef.wandb"), key=lambda file: file.stat().st_mtime
    )
    assert files, "the resumed run has the same id"
    records = [record for file in files for record in wandb_records(file)]
    history = [values_of(record.history.item) for record in records if record.WhichOneof("record_type") == "history"]
    games = [(row["global_steps"], row["episode_return"]) for row in history if "episode_return" in row]
    assert games == ROWS
    assert [row["learning_rate"] for row in history if "learning_rate" in row] == [0.5, 0.5]
    assert [row["worker_entropy"] for row in history if "worker_entropy" in row] == [0.25, 0.25]
    assert [row["_step"] for row in history] == list(range(4)), "no step twice, so that syncing drops none"
    config: dict[str, Any] = {}
    for record in records:
        config |= values_of(record.run.config.update) | values_of(record.config.update)
    assert {key: config[key] for key in SETTINGS} == SETTINGS
    assert config["adjusted.T200"] == "event 6"
    runs = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert {(run.project, run.run_group, run.display_name) for run in runs} == {("ps-rl", "rates", tmp_path.name)}
    alerts = [record.alert.text for record in records if record.WhichOneof("record_type") == "alert"]
    assert alerts == ["event 2", "event 5"]
    summary: dict[str, Any] = {}
    for record in records:
        summary |= values_of(record.summary.update)
    assert (summary["ending"], summary["mean_return_100"]) == ("enough", 40.0)


# -- MLflow -----------------------------------------------------------------------------------------------------------


@pytest.mark.nightly  # half a minute: make trackers
def test_a_run_is_at_mlflow(tmp_path: Path) -> None:
    pytest.importorskip("mlflow", reason="the extra mlflow is not installed: make trackers")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    sent_twice(tmp_path, "mlflow", MLFLOW_TRACKING_URI=uri)
    read = (
        "import json, sys; from mlflow.tracking import MlflowClient; c = MlflowClient(sys.argv[1]); "
        "e = c.get_experiment_by_name('rates').experiment_id; runs = c.search_runs([e]); r = runs[0]; "
        "h = {k: [[m.step, m.value] for m in c.get_metric_history(r.info.run_id, k)] for k in r.data.metrics}; "
        "print(json.dumps([len(runs), r.info.status, r.info.run_name, r.data.params, r.data.tags, h]))"
    )
    output = subprocess.run([sys.executable, "-c", read, uri], capture_output=True, text=True, check=True).stdout
    count, status, name, params, tags, history = msgspec.json.decode(output.splitlines()[-1])
    assert (count, status, name) == (1, "FINISHED", tmp_path.name)
    assert history["episode_return"] == [list(row) for row in ROWS]
    assert history["worker_entropy"] == [[100, 0.25], [200, 0.25]]
    assert {key: params[key] for key in SETTINGS} == {key: str(value) for key, value in SETTINGS.items()}
    assert tags["adjustment.7.3"] == "T 100: event 3"
    assert tags["warning.7.5"] == "T 200: event 5"
    assert tags["ending"] == "enough"
    assert history["final_mean_return_100"][-1] == [200, 40.0]


# -- a tracker that fails ---------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_a_service_that_never_replies_holds_nothing_up_and_gets_the_rows_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    lines: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as service:
        service.settimeout(120)
        monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{service.getsockname()[1]}")
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
        monkeypatch.setattr(followers, "LEAVE_SECONDS", 0.5)
        with followers_of(tmp_path, track=["wandb"], web_port=None, report=lines.append):
            a_run(tmp_path, part=0)
            with service.accept()[0]:  # it waits for a reply that never comes
                assert not lines
            a_run(tmp_path, part=1)
    assert lines[0].startswith("wandb: was not done within 0.5 s (its log: ")
    assert f"python -m ps_track {tmp_path} --track wandb" in lines[0]
    monkeypatch.delenv("WANDB_BASE_URL")
    assert "4 points sent" in sent(tmp_path, "wandb", WANDB_MODE="offline")


def test_while_a_tracker_fails_the_rows_wait_in_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent_points: list[int] = []
    tracker = Mock(add=Mock(side_effect=ConnectionError))
    monkeypatch.setattr(Tracking, "_begun", lambda *_: tracker)
    a_run(tmp_path, part=0)
    sending = Tracking(tmp_path, "wandb")
    for part in (0, 1):
        with pytest.raises(ConnectionError):
            sending.send()
        if not part:
            a_run(tmp_path, part=1)
        assert [len(points) for (points, _), _ in tracker.add.call_args_list] == [2] * (1 + part)
    tracker.add = lambda points, events, *, first: sent_points.append(first + len(points))
    sending.send()
    assert sent_points == [2, 4]
    assert Feed(tmp_path, tracker_position(tmp_path, "wandb")).position.points == 4


def test_a_tracker_that_is_not_installed_is_an_error_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trackers.PACKAGES, "wandb", ("no_such_package_of_wandb",))
    with pytest.raises(SettingsError, match=r"--track wandb: .*pip install .*'\.\[wandb\]'"):
        parse_with_run(ClusterSettings, ["--track", "wandb"], prog="it")
    with pytest.raises(SystemExit, match="2"):
        parse_with_run(ClusterSettings, ["--track", "neptune"], prog="it")


def test_a_real_run_is_tracked_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    position = tmp_path / "run" / "wandb.json"
    with programs_in(tmp_path) as programs:
        run = str(tmp_path / "run")
        flags = ["--workers", "1", "--no-web", "--until-return", "None", "--run-dir", run, "--track", "wandb"]
        cluster = programs.start("rl-cluster", "--preset", "cartpole-a3c", *flags)
        wait_for(position.exists, program=cluster)
        assert programs.start("ps-ctl", "stop", "--server", run).wait() == 0
        assert cluster.wait() == 0
    assert "points sent; offline in" in cluster.output
