"""
Scores while a run trains: the games of each new checkpoint, until the run is over. Its server is told each score.

Of a run with --evaluate-every, the weights are those that its server has put aside to be evaluated. All evaluations
play the same games, by the same seed, so that scores differ by the weights alone.
"""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

from ps_common.errors import CheckpointError, PsRlError, ServerUnreachable
from ps_common.protocol.messages import Evaluated, Evaluation
from ps_common.protocol.status import Status
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.endpoint_file import address_of, is_serving, read_endpoint
from ps_common.run_folder.paths import CANDIDATE, CHECKPOINTS, ENDPOINT, METRICS, shards_in
from ps_common.run_folder.run_rows import MetricsRow, last_row
from ps_common.run_folder.trained import Trained, trained_as
from ps_common.settings.run_files import SETTINGS, settings_as_written
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import SERVED_ELSEWHERE, ask_run, status_of
from rl_eval.games import Result
from rl_eval.trained import REPLY_TIMEOUT_SECONDS, trained_at

LOOK_SECONDS = 1.0  # between two looks for newer weights
GONE_SECONDS = 60.0  # without a reply of the server, before the run is taken for over

log = logging.getLogger("rl-eval")


def new_weights(place: str, keys: ClientKeys | None) -> Iterator[Trained]:
    """Those of each new checkpoint of a run, by its folder or its server, as they come; skips some while one plays."""
    path = Path(place)
    if path.is_dir() and shards_in(path) == 1:
        return _of_folder(path)
    return _of_server(address_of("--follow", place), keys)


def report(place: str, trained: Trained, result: Result, keys: ClientKeys | None) -> str:
    """Report a score to the server of the run. Returns what came of it, in words; no failure raises."""
    path = Path(place)
    evaluation = Evaluation(
        request=1,
        run_id=trained.run_id,
        version=trained.version,
        global_steps=trained.global_steps,
        minutes=trained.minutes,
        games=result.episodes,
        mean_return=result.mean,
        low=result.low,
        high=result.high,
        metrics=result.metrics,
    )
    address = read_endpoint(path / ENDPOINT) if path.is_dir() and shards_in(path) == 1 else ""
    try:
        address = address or address_of("--follow", place)
        reply, _ = ask_run(address, evaluation, timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    except PsRlError as error:
        return f"not reported: {error}"
    if not isinstance(reply, Evaluated):
        return "not reported: the run is over"
    return "the best so far" if reply.best else "" if reply.counted else "evaluated before"


def _of_folder(folder: Path) -> Iterator[Trained]:
    seen: tuple[str, int, int] | None = None
    while True:
        is_over = _is_over(folder)  # before the look: what is written after it is seen by the next
        try:
            if (newest := _newest(folder)) is not None and (look := _look(newest)) != seen:
                trained, seen = trained_as(newest), look
                yield trained
                continue
        except (OSError, CheckpointError) as error:
            log.debug("%s", error)  # the server has put another file in its place
        if is_over:
            return
        time.sleep(LOOK_SECONDS)


def _newest(folder: Path) -> Path | None:
    if settings_as_written(folder / SETTINGS).get("records", {}).get("evaluate_every", 0):
        candidate = folder / CHECKPOINTS / CANDIDATE
        return candidate if candidate.exists() else None
    return next(iter(checkpoints_of(folder)), None)


def _look(path: Path) -> tuple[str, int, int]:
    """What differs where the file is another one."""
    stat = path.stat()
    return path.name, stat.st_ino, stat.st_mtime_ns


def _is_over(folder: Path) -> bool:
    last = last_row(folder / METRICS, MetricsRow)
    return last is not None and bool(last.ending) and not is_serving(folder)


def _of_server(address: str, keys: ClientKeys | None) -> Iterator[Trained]:
    before: Status | None = None
    heard = time.monotonic()
    while time.monotonic() - heard < GONE_SECONDS:
        try:
            status = status_of(address, timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys).status
            heard = time.monotonic()
            if before is not None and status.run_id not in ("", before.run_id):
                return  # another run is served there now
            if status.ending and status.phase not in SERVED_ELSEWHERE:
                return
            if status.version > 0 and _is_newer(status, before):
                before = status
                yield trained_at(address, keys)
                continue
        except ServerUnreachable as error:
            log.debug("%s", error)
        time.sleep(LOOK_SECONDS)
    log.warning("%s has not replied for %g s; the run is taken for over", address, GONE_SECONDS)


def _is_newer(status: Status, before: Status | None) -> bool:
    """Whether the run has a newer checkpoint, or has passed another multiple of --evaluate-every."""
    if before is None:
        return True
    if every := status.evaluate_every:
        return status.global_steps // every > before.global_steps // every
    return status.checkpoint_version != before.checkpoint_version
