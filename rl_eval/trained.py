"""
The trained agent that is evaluated: with the weights that are kept in some place, those of a live server, or those of
each new checkpoint of a run while it trains, whose server is told the score.

Of a run with --evaluate-every, the weights are those that its server has put aside to be evaluated.
"""

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from ps_common.errors import CheckpointError, PsRlError, ServerUnreachable, SettingsError
from ps_common.protocol import messages
from ps_common.protocol.codecs import codec_named
from ps_common.protocol.status import Status
from ps_common.protocol.tensors import Schema
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.endpoint_file import address_of, is_serving
from ps_common.run_folder.paths import CANDIDATE, CHECKPOINTS, METRICS, shards_in
from ps_common.run_folder.run_rows import MetricsRow, last_row
from ps_common.run_folder.trained import Trained, sha256_of, trained_as
from ps_common.settings.run_files import SETTINGS, settings_as_written
from ps_common.settings.run_settings import run_from_dict
from ps_common.sockets.curve import ClientKeys
from ps_common.sockets.request import SERVED_ELSEWHERE, ask, ask_run, status_of
from rl_agent.agent import trained_agent
from rl_agent.algorithms.action_values import EVALUATION_EPSILON, EpsilonGreedy
from rl_agent.algorithms.algorithm import Algorithm
from rl_agent.environments.spaces import Spaces
from rl_eval.games import Result
from rl_eval.policy_folder import ExportedPolicy

REPLY_TIMEOUT_SECONDS = 30.0
LOOK_SECONDS = 1.0  # between two looks for newer weights
STATUS_SECONDS = 5.0  # for the reply to one request of the status
GONE_SECONDS = 20.0  # without a reply of the server, before the run is taken for over

log = logging.getLogger("rl-eval")


def agent_of(
    trained: Trained | ExportedPolicy, spaces: Spaces, *, epsilon: float | None, greedy: bool, seed: int
) -> tuple[Algorithm, float | None]:
    """
    The agent with these weights, for evaluation, and its share of random actions; None of a method without one.

    The share is `epsilon`, or 0 if greedy, or EVALUATION_EPSILON. Raises CheckpointError for another network's
    weights, and SettingsError for an `epsilon` that the method cannot have.
    """
    agent = trained_agent(
        trained.run,
        spaces,
        trained.schema,
        trained.weights,
        global_steps=trained.global_steps,
        seed=seed,
        origin=trained.origin,
    )
    if isinstance(agent, EpsilonGreedy):
        share = 0.0 if greedy else EVALUATION_EPSILON if epsilon is None else epsilon
        agent.play_with(share)
        return agent, share
    if epsilon is not None:
        raise SettingsError(f"--epsilon {epsilon:g}: belongs to methods of action values; {trained.origin} has none")
    return agent, None


def trained_at(server: str, keys: ClientKeys | None) -> Trained:
    """The newest weights of a live server."""
    status = status_of(server, timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    if not status.schema:
        raise SettingsError(f"--server {server}: its run has no weights yet; try again when a worker has joined")
    shard, schema = status.status.shard, Schema(status.schema)
    servers = dict(enumerate(shard.addresses, 1)) | {shard.number: server}
    pulled = [_pulled(servers[number], schema.of_shard(number, shard.of), keys) for number in range(1, shard.of + 1)]
    weights, version, steps = torch.cat([one[0] for one in pulled]), *pulled[0][1:]
    run = run_from_dict(status.run, source=server)
    origin = f"{server}, version {version}"
    of_run = status.status.run_id, version
    return Trained(run, schema, weights, steps, status.status.minutes, origin, sha256_of(weights), *of_run)


def _pulled(server: str, schema: Schema, keys: ClientKeys | None) -> tuple[Tensor, int, int]:
    """The newest weights of a server, their version, and T."""
    pull, within = messages.Pull(request=2), REPLY_TIMEOUT_SECONDS
    reply, vector = ask(server, pull, timeout_seconds=within, keys=keys)
    if not isinstance(reply, messages.Weights):
        raise SettingsError(f"--server {server}: has no weights yet; try again when a worker has joined")
    return codec_named(reply.codec).decode(vector, schema.size).clone(), reply.version, reply.global_steps


def new_weights(place: str, keys: ClientKeys | None) -> Iterator[Trained]:
    """Those of each new checkpoint of a run, by its folder or its server, as they come; skips some while one plays."""
    path = Path(place)
    if path.is_dir() and shards_in(path) == 1:
        return _of_folder(path)
    return _of_server(address_of("--follow", place), keys)


def report(place: str, trained: Trained, result: Result, keys: ClientKeys | None) -> str:
    """Report a score to the server of the run. Returns what came of it, in words; no failure raises."""
    evaluation = messages.Evaluation(
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
    try:
        reply, _ = ask_run(address_of("--follow", place), evaluation, timeout_seconds=REPLY_TIMEOUT_SECONDS, keys=keys)
    except PsRlError as error:
        return f"not reported: {error}"
    if not isinstance(reply, messages.Evaluated):
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
            status = status_of(address, timeout_seconds=STATUS_SECONDS, keys=keys).status
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
