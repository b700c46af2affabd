"""Whatever lies where a file is expected: it is read, or refused at once with a reason. Nothing waits."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ps_common.errors import CheckpointError, PsRlError, ReceiptError, SettingsError
from ps_common.run_folder.checkpoint_file import read_checkpoint
from ps_common.run_folder.endpoint_file import read_endpoint, write_endpoint
from ps_common.run_folder.folder_lock import FolderLocks
from ps_common.run_folder.output_files import check_output, write_output
from ps_common.run_folder.run_rows import LONGEST_LINE, EpisodeRow, MetricsRow, RowsTail, rows_in
from ps_common.run_folder.trained import trained_in
from ps_common.settings.regular_file import content_of, opened, opened_to_write
from ps_common.settings.run_files import load_config, settings_as_written
from ps_common.sockets.curve import read_public
from ps_ctl.plots import plot_runs
from ps_rl.run import Run
from ps_server.records.bounded_file import BoundedLinesFile
from ps_server.records.tensorboard import EventFile
from ps_server.storage.earlier_life import read_lineage, write_lineage
from ps_server.storage.run_storage import RunStorage
from ps_track.feed import Feed
from rl_eval.policy import load_policy
from rl_eval.policy_folder import read_model
from rl_eval.receipt import read_receipt
from tests.records import LINEAGE

pytestmark = pytest.mark.timeout(60)


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def a_folder(path: Path) -> None:
    path.mkdir()


def a_link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def a_huge_file(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**42)  # sparse: it takes no room on the disk


KINDS = [a_fifo, a_link_to_zeros, a_folder, a_link_to_itself, a_huge_file]
each_kind = pytest.mark.parametrize("make", KINDS, ids=lambda make: str(make.__name__))

REFUSING: dict[str, Callable[[Path], object]] = {
    "checkpoint-000000000001.safetensors": read_checkpoint,
    "best.safetensors": trained_in,
    "a.safetensors": load_policy,
    "model.safetensors": read_model,
    "receipt.json": read_receipt,
    "mine.toml": load_config,
    "lineage.json": lambda path: read_lineage(path.parent),
    "server.key": lambda path: read_public("--curve-server-key", path),
}


@each_kind
@pytest.mark.parametrize("name", REFUSING)
def test_what_is_no_regular_file_is_refused_with_its_name(
    name: str, make: Callable[[Path], None], tmp_path: Path
) -> None:
    path = tmp_path / name
    make(path)
    with pytest.raises((CheckpointError, ReceiptError, SettingsError), match=name.replace(".", r"\.")):
        REFUSING[name](path)


@each_kind
def test_files_of_a_run_folder_that_are_none_count_as_missing(make: Callable[[Path], None], tmp_path: Path) -> None:
    for name in ("metrics.jsonl", "episodes.jsonl", "workers.jsonl", "events.jsonl", "endpoint", "run.toml", "x.json"):
        make(tmp_path / name)
    assert settings_as_written(tmp_path / "run.toml") == {}
    assert read_endpoint(tmp_path / "endpoint") == ""
    assert RowsTail(tmp_path / "metrics.jsonl", MetricsRow).read() == ([], False)
    assert not Feed(tmp_path, "x").read().points
    with pytest.raises(OSError, match="metrics"):
        list(rows_in(tmp_path / "metrics.jsonl", MetricsRow))
    with pytest.raises(PsRlError):
        plot_runs([tmp_path], tmp_path / "curve.png")
    assert Run(tmp_path).status is None


WRITING: dict[str, Callable[[Path], object]] = {
    "metrics.jsonl": lambda path: BoundedLinesFile(path, most_bytes=100).close(),
    "endpoint": lambda path: write_endpoint(path, "x:1"),
    "lineage.json": lambda path: write_lineage(path.parent, LINEAGE),
    "server.lock": lambda path: FolderLocks([path.parent]).close(),
    "server.log": lambda path: opened_to_write(path).close(),
    "curve.png": lambda path: write_output("--out", path, b"a picture"),
    "scores.json": lambda path: check_output("--json", path),
    "checkpoints": lambda path: RunStorage(path.parent, checkpoints=None, may_hold_a_run=True).close(),
    "tensorboard": lambda path: EventFile(path.parent).close(),
}


@pytest.mark.parametrize("name", WRITING)
def test_nothing_is_written_to_a_file_that_a_link_in_a_run_folder_leads_to(name: str, tmp_path: Path) -> None:
    """As where a run of somebody else is resumed. Nor is a pipe waited for."""
    mine, folder_of_mine = tmp_path / "mine", tmp_path / "mine too"
    mine.write_text("my own")
    folder_of_mine.mkdir()
    links = [lambda path: path.symlink_to(mine), lambda path: path.symlink_to(folder_of_mine)]
    for number, make in enumerate([*links, *KINDS]):
        folder = tmp_path / f"run-{number}"
        folder.mkdir()
        make(folder / name)
        with contextlib.suppress(OSError, SettingsError):
            WRITING[name](folder / name)
        assert mine.read_text() == "my own"
        assert list(folder_of_mine.iterdir()) == []


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    assert content_of(path, most_bytes=10) == b"x" * 10
    with pytest.raises(OSError, match="has more than 9 bytes"):
        content_of(path, most_bytes=9)
    with opened(path) as file:
        assert not os.get_inheritable(file.fileno())
    assert len(content_of(Path("/proc/self/status"))) > 0
    assert len(content_of(Path("/proc/self/status"), most_bytes=3)) == 3


def test_a_line_without_an_end_is_skipped_in_pieces(tmp_path: Path) -> None:
    row = b'{"episode":1,"global_steps":2,"minutes":0.5,"worker":"a","episode_return":1.0,"length":2}\n'
    path = tmp_path / "episodes.jsonl"
    path.write_bytes(row + b"x" * (3 * LONGEST_LINE) + b"\n" + row)
    assert [one.episode for one in rows_in(path, EpisodeRow)] == [1, 1]


@pytest.mark.parametrize(
    "text",
    [
        f"a = {'[' * 10_000}{']' * 10_000}",
        f"a = {'9' * 5_000}",
        "[[[",
        "\0",
        "a = 1\na = 2",
        "a = 1979-05-27",
        "a = [[1]]",
    ],
    ids=lambda text: text[:12],
)
def test_settings_of_any_content_are_refused_or_taken_for_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=r"mine\.toml: "):
        load_config(path)
    assert settings_as_written(path) == {}
    path.write_bytes(b"\xff\xfe" + text.encode())
    with pytest.raises(SettingsError, match=r"mine\.toml: not TOML"):
        load_config(path)
