"""
What a page promises of a command, and how a test sees it: `SEEN` has a row for every command of ours in a block.

A row begins with the program, and the command line has its other words; the first row that fits counts. A command
without a row fails a test: whoever documents a command says here what its reader gets. A program that serves is waited
for until what it serves is there, and not only its first line.
"""

import json
import re
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import build_opener

import pytest
from PIL import Image

from ps_common.errors import ServerUnreachable
from ps_common.protocol.status import Status
from ps_common.run_folder.paths import EPISODES, METRICS, records_folder, tracker_position
from ps_common.sockets.curve import ClientKeys, read_pair
from rl_cluster.cores import usable_cores
from tests.integration.processes import Program, status_of, wait_for

SECONDS = 120.0  # for anything that is promised, on a machine with other work
SECONDS_OF_PAUSE = 1.0


@dataclass
class Sight:
    """A command that has ended, or that serves and goes on; `server` is that of its block."""

    words: Sequence[str]  # as it was started
    program: Program
    folder: Path  # where it works
    server: str  # HOST:PORT; "" where none is involved

    @property
    def output(self) -> str:
        return self.program.output

    @property
    def keys(self) -> ClientKeys | None:
        """Those that a locked server knows."""
        if not any(word.startswith("--curve") for word in self.words):
            return None
        own = read_pair("--curve-secret", self.folder / "keys" / "server.key_secret")
        return ClientKeys(own.public, own)

    def status(self) -> Status:
        return status_of(self.server, self.keys)

    def value(self, flag: str) -> str:
        return self.words[list(self.words).index(flag) + 1]

    def path(self, flag: str) -> Path:
        return self.folder / self.value(flag)

    def says(self, pattern: str) -> re.Match[str]:
        found = re.search(pattern, self.output)
        assert found, f"{' '.join(self.words)} does not say {pattern}:\n{self.output}"
        return found

    def wait_for(self, condition: Callable[[], object]) -> None:
        wait_for(condition, program=self.program, within_seconds=SECONDS)


# -- servers and workers ----------------------------------------------------------------------------------------------


def a_server_waits_for_workers(sight: Sight) -> None:
    """It answers, and prints the command for the workers, which the block's next command is."""
    assert sight.status().phase in ("empty", "serving")
    sight.says(r"start workers with: rl-worker --server \S+:\d+")


def a_server_is_locked(sight: Sight) -> None:
    a_server_waits_for_workers(sight)
    with pytest.raises(ServerUnreachable):
        status_of(sight.server)
    sight.says("--curve-server-key server.key --curve-secret worker.key_secret")


def a_server_goes_on_where_the_run_was(sight: Sight) -> None:
    """That of the finished run."""
    steps = int(sight.says(r"resumed \S+ at step (\d+)")[1])
    assert steps >= 5000
    assert (sight.status().phase, sight.status().global_steps) == ("serving", steps)


def a_standby_listens(sight: Sight) -> None:
    """It follows when the run has weights; the end of a block sees it take over."""
    sight.says(r"the standby of \S+, port \d+; start workers with: rl-worker --server \S+,\S+")


def workers_push(sight: Sight) -> None:
    """All that the command starts are members, and T counts what each has pushed."""
    count = usable_cores() if sight.words[0] == "rl-cluster" else 1
    told = re.compile(r"INFO (\S+): worker \d+ of run")

    def all_push() -> bool:
        names = set(told.findall(sight.output))
        members = {one.worker_id for one in sight.status().workers if one.alive and one.pushes and one.steps}
        return len(names) == count and names <= members

    sight.wait_for(all_push)


# -- a whole run ------------------------------------------------------------------------------------------------------


def run_folder(sight: Sight) -> Path:
    """That of rl-cluster's run."""
    if "--resume" in sight.words:
        return sight.path("--resume")
    return sight.folder / sight.says(r"run folder: (\S+)")[1]


def a_run_is_trained(sight: Sight) -> None:
    """To its limit, with a page unless there is to be none, and the commands that go on from there."""
    folder = run_folder(sight)
    last = _last_row(records_folder(folder) / METRICS)
    assert last["global_steps"] >= int(sight.value("--max-steps"))
    assert list((folder / "checkpoints").glob("checkpoint-*.safetensors"))
    sight.says(rf"rl-eval --checkpoint {re.escape(str(folder.relative_to(sight.folder)))}")
    assert ("page: http://127.0.0.1:" in sight.output) == ("--no-web" not in sight.words)


def a_run_is_named(sight: Sight) -> None:
    a_run_is_trained(sight)
    assert run_folder(sight).parent == sight.folder / "runs" / sight.value("--experiment")


def a_run_is_tracked(sight: Sight) -> None:
    a_run_is_trained(sight)
    all_is_sent(run_folder(sight), [sight.words[at + 1] for at, word in enumerate(sight.words) if word == "--track"])


def games_are_noted(sight: Sight) -> None:
    """By the hook of examples/hooks.py."""
    a_run_is_trained(sight)
    noted = [line for file in run_folder(sight).rglob("games-*.csv") for line in file.read_text().splitlines()]
    noted += [line for file in sight.folder.glob("games-*.csv") for line in file.read_text().splitlines()]
    assert noted


def a_run_goes_on(sight: Sight) -> None:
    """Beyond the 5,000 steps of the finished run."""
    a_run_is_trained(sight)
    assert "until_return" not in tomllib.loads((run_folder(sight) / "run.toml").read_text())["budget"]


# -- ps-ctl -----------------------------------------------------------------------------------------------------------


def the_status_is_shown(sight: Sight) -> None:
    for shown in (r"is serving, version \d+", r"T [\d,]+ .*steps/s", r"staleness ", r"worker +no\."):
        sight.says(shown)


def events_are_shown(sight: Sight) -> None:
    sight.says(r"seeded with \d+ tensors")
    sight.says(r"note +\S+ joined")


def the_settings_are_changed(sight: Sight) -> None:
    """In the run, with a line of its history for each."""
    changed = {one.setting.rpartition(".")[2]: one.after for one in sight.status().adjustments}
    for name, value in (word.split("=") for word in sight.words if "=" in word):
        if name in changed:
            assert changed[name] == pytest.approx(float(value))
            sight.says(rf"{name}: .* -> ")
        else:
            sight.says(rf"{name}: is {value}\S* already")


def the_run_stands_still(sight: Sight) -> None:
    """Workers stay; what they push waits, and minutes do not count."""
    before, begun = sight.status(), time.monotonic()
    assert before.paused
    assert before.workers_alive
    wait_for(lambda: time.monotonic() - begun > SECONDS_OF_PAUSE)
    after = sight.status()
    assert (after.global_steps, after.minutes) == (before.global_steps, before.minutes)


def the_run_goes_on(sight: Sight) -> None:
    """After a pause; after a drain it waits for workers, which rl-cluster starts again."""
    begun = sight.status()
    assert (begun.paused, begun.drained) == (False, False)
    if begun.workers_alive:
        wait_for(lambda: sight.status().global_steps > begun.global_steps, within_seconds=SECONDS)


def all_workers_have_left(sight: Sight) -> None:
    status = sight.status()
    assert status.drained
    assert [one.worker_id for one in status.workers if one.alive] == []
    assert all(one.left for one in status.workers)
    assert status.checkpoint_version == status.version


def a_checkpoint_is_on_disk(sight: Sight) -> None:
    path = Path(sight.says(r"saved as (\S+)")[1])
    assert path.exists() or (sight.folder / path).exists()
    assert sight.status().checkpoint_version >= int(sight.says(r"version (\d+)")[1]) >= 1


def a_standby_serves_the_run(sight: Sight) -> None:
    """In place of a primary that is silent."""
    sight.says(r"serves the run from version \d+ on")
    assert sight.status().phase == "serving"


def the_run_has_ended(sight: Sight) -> None:
    """Its server has saved it, and answers no more."""
    sight.says("the run is ending")
    wait_for(lambda: not _answers(sight), within_seconds=SECONDS)


def _answers(sight: Sight) -> bool:
    try:
        sight.status()
    except ServerUnreachable:
        return False
    return True


def keys_are_made(sight: Sight) -> None:
    folder = sight.folder / sight.words[-1]
    for name in ("server.key", "server.key_secret", "worker.key_secret", "admin.key_secret", "authorized/worker.key"):
        assert (folder / name).exists(), name
    assert (folder / "server.key_secret").stat().st_mode & 0o077 == 0, "others may not read it"


def a_curve_is_drawn(sight: Sight) -> None:
    with Image.open(sight.folder / sight.output.strip().splitlines()[-1]) as picture:
        assert picture.format == "PNG"
        assert picture.width > 400


def a_policy_is_taken_away(sight: Sight) -> None:
    """The folder plays: the block's next command is seen to play it, and its receipt is verified here."""
    folder = sight.folder / (sight.value("--export"))
    files = {path.name for path in folder.iterdir()}
    expected = {"model.safetensors", "settings.toml", "README.md", "receipt.json"}
    assert files == expected | ({"model.onnx"} if "--onnx" in sight.words else set())
    games = json.loads((folder / "receipt.json").read_text())["games"]
    assert len(games) == (int(sight.value("--episodes")) if "--episodes" in sight.words else 100)


# -- the others -------------------------------------------------------------------------------------------------------


def games_are_scored(sight: Sight) -> None:
    how = "greedy" if "--greedy" in sight.words else "sampled"
    sight.says(rf"mean [-\d.]+ \(95 % .*of {sight.value('--episodes')} full games, {how} actions")


def a_run_is_followed(sight: Sight) -> None:
    """To the end: that of the page is over, and its newest checkpoint is scored."""
    games_are_scored(sight)
    sight.says(r"step [\d,]+: ")


def scores_are_written(sight: Sight) -> None:
    games_are_scored(sight)
    assert len(json.loads(sight.path("--json").read_text())["scores"]) == int(sight.value("--episodes"))


def a_game_is_seen(sight: Sight) -> None:
    with Image.open(sight.path("--gif")) as picture:
        frames = [picture.seek(frame) or picture.copy() for frame in range(getattr(picture, "n_frames", 1))]
    assert len(frames) > 5
    assert len({frame.tobytes() for frame in frames}) > 1, "it moves"


def a_receipt_is_written(sight: Sight) -> None:
    games_are_scored(sight)
    assert len(json.loads(sight.path("--receipt").read_text())["games"]) == int(sight.value("--episodes"))


def a_receipt_is_verified(sight: Sight) -> None:
    sight.says("verified: each of 5 games has its score again")


def a_page_shows_the_run(sight: Sight) -> None:
    """With the token of its printed address it hands out the run, and not only a frame around nothing."""
    address = sight.says(r"page: (\S+)")[1]
    page = build_opener().open(address, timeout=SECONDS).read().decode()
    assert "<html" in page
    root = address.partition("?")[0].rstrip("/")
    ready = build_opener().open(f"{root}/readyz", timeout=SECONDS)
    assert ready.status == 200


def the_rest_is_sent(sight: Sight) -> None:
    folder, tracker = sight.folder / sight.words[1], sight.value("--track")
    if "--follow" in sight.words:  # it sends soon, and does not end
        wait_for(tracker_position(folder, tracker).exists, program=sight.program, within_seconds=SECONDS)
    all_is_sent(folder, [tracker])


def all_is_sent(folder: Path, trackers: Sequence[str]) -> None:
    """The tracker has every row of the run."""
    rows, games = (_last_row(folder / name) for name in (METRICS, EPISODES))
    for tracker in trackers:
        sent = json.loads(tracker_position(folder, tracker).read_text())
        assert (sent["time"], sent["episode"]) == (rows["time"], games["episode"]), tracker


def _last_row(path: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(path.read_text().splitlines()[-1])
    return row


SEEN: Mapping[tuple[str, ...], Callable[[Sight], None]] = {
    ("ps-server", "--standby-of"): a_standby_listens,
    ("ps-server", "--resume"): a_server_goes_on_where_the_run_was,
    ("ps-server", "--curve-secret"): a_server_is_locked,
    ("ps-server",): a_server_waits_for_workers,
    ("rl-worker",): workers_push,
    ("rl-cluster", "--server"): workers_push,
    ("rl-cluster", "--resume"): a_run_goes_on,
    ("rl-cluster", "--track"): a_run_is_tracked,
    ("rl-cluster", "--hook"): games_are_noted,
    ("rl-cluster", "--experiment"): a_run_is_named,
    ("rl-cluster",): a_run_is_trained,
    ("ps-ctl", "status"): the_status_is_shown,
    ("ps-ctl", "events"): events_are_shown,
    ("ps-ctl", "set"): the_settings_are_changed,
    ("ps-ctl", "pause"): the_run_stands_still,
    ("ps-ctl", "drain"): all_workers_have_left,
    ("ps-ctl", "resume"): the_run_goes_on,
    ("ps-ctl", "checkpoint"): a_checkpoint_is_on_disk,
    ("ps-ctl", "stop"): the_run_has_ended,
    ("ps-ctl", "promote"): a_standby_serves_the_run,
    ("ps-ctl", "keygen"): keys_are_made,
    ("ps-ctl", "plot"): a_curve_is_drawn,
    ("rl-eval", "--follow"): a_run_is_followed,
    ("rl-eval", "--verify"): a_receipt_is_verified,
    ("rl-eval", "--json"): scores_are_written,
    ("rl-eval", "--gif"): a_game_is_seen,
    ("rl-eval", "--receipt"): a_receipt_is_written,
    ("rl-eval", "--export"): a_policy_is_taken_away,
    ("rl-eval",): games_are_scored,
    ("ps-web",): a_page_shows_the_run,
    ("ps_track",): the_rest_is_sent,
}


def promise_of(words: Sequence[str]) -> Callable[[Sight], None] | None:
    """How the promise of a command is seen; None without a row."""
    return next((seen for key, seen in SEEN.items() if words[0] == key[0] and set(key) <= set(words)), None)
