"""
Faults that are put into the product on purpose, one function each: the search has to find each within so many worlds.

A mutant that is not found is a hole in what a world checks.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import msgspec

from ps_client.machine.resend_buffer import ResendBuffer
from ps_common.protocol.deltas import Base
from ps_server.machine import dispatch
from ps_server.machine.checkpoints import Checkpoints
from ps_server.machine.consistency import ConsistencyGate
from ps_server.machine.membership import Membership
from ps_server.replication.standby_copy import Replay
from ps_server.standby import standby
from ps_server.standby.following import Following
from ps_server.standby.promotion import Promise
from ps_server.standby.standby import Standby
from ps_server.state.ledger import Ledger
from ps_server.state.training_run import TrainingRun


@dataclass(frozen=True)
class Mutant:
    """The search from 0 on has to find it among the first `within` worlds."""

    patched: Callable[[], AbstractContextManager[Any]]
    within: int


def _instead(owner: Any, name: str, made: Callable[..., Any]) -> Callable[[], AbstractContextManager[Any]]:
    """`made` gets the original as its first argument."""
    original = getattr(owner, name)

    def mutated(*arguments: Any, **named: Any) -> Any:
        return made(original, *arguments, **named)

    return lambda: mock.patch.object(owner, name, mutated)


def _forgets_one(settle: Any, ledger: Ledger, worker_id: str, sequence: int) -> None:
    if sequence % 4:
        settle(ledger, worker_id, sequence)


def _acknowledges_first(apply: Any, copy: Following, replay: Replay, update: Any, *rest: Any, **named: Any) -> Any:
    if update.number > copy.position + 1:  # one that is out of order
        copy.position = update.number
        return [copy._acknowledge()]
    return apply(copy, replay, update, *rest, **named)


def _older_ledger(record: Any, run: TrainingRun, *, now: float) -> Any:
    """The ledger of the last checkpoint beside the weights of this one."""
    newest = record(run, now=now)
    before, run.__dict__["ledger_before"] = run.__dict__.get("ledger_before", newest.ledger), newest.ledger
    return msgspec.structs.replace(newest, ledger=before)


def _drops_the_oldest(keep: Any, buffer: ResendBuffer, push: Any, vector: Any) -> None:
    keep(buffer, push, vector)
    oldest = buffer.oldest
    if oldest is not None and len(buffer) > 8 and buffer._kept[oldest].settled:
        buffer._drop(oldest)


def _wrong_base(delta_to: Any, base: Base, newer: Any) -> bytes:
    encoded = bytearray(base.encoded)
    encoded[0] ^= 1
    result: bytes = delta_to(Base(bytes(encoded), base.weights), newer)
    return result


def _half(settle: Any, run: TrainingRun, pushes: Sequence[Any]) -> Any:
    before = run.weights.flat.clone()
    settled = settle(run, pushes)
    if run.weights.version % 16 == 0:
        half = before.numel() // 2
        run.weights.flat[:half] = before[:half]
    return settled


def _counts_twice(waits: Any, gate: ConsistencyGate, worker_id: str) -> bool:
    more = sum(len(pushes) > 1 for worker, pushes in gate._waiting.items() if worker != worker_id)
    return waits(gate, worker_id) or (gate._settings.rule == "sync" and more > 0)


def _durable_at_once(started: Any, checkpoints: Checkpoints, content: Any, *, now: float) -> None:
    started(checkpoints, content, now=now)
    checkpoints._undurable.append(content)


def _without_standby(_mark_durable: Any, checkpoints: Checkpoints, ledger: Ledger) -> None:
    for content in checkpoints._undurable:
        ledger.mark_durable(content.accounts)
    checkpoints._undurable.clear()


def _any_process(open_account: Any, ledger: Ledger, worker_id: str, opened: Any) -> Any:
    known = ledger.accounts.get(worker_id)
    if known is not None:
        known.proof = opened.proof  # the account of the process before
    return open_account(ledger, worker_id, opened)


def _no_slack(next_of_ssp: Any, gate: ConsistencyGate, members: Membership) -> Any:
    settled = next_of_ssp(gate, members)
    if settled or not gate._waiting:
        return settled
    worker = next(iter(gate._waiting))
    gate._clocks[worker] += 1
    return [gate._take(worker)]


def _same_epoch(is_fenced: Any, message: Any, run: TrainingRun | None) -> bool:
    return is_fenced(message, run) or (run is not None and getattr(message, "latest_epoch", -1) == run.epoch)


def _at_the_word_of_anybody(unconvinced: Any, standby: Standby, peer: Any, hello: Any, *, now: float) -> Any:
    """The rule up to 0.3: complete when the silence began, or ten seconds of it."""
    if now - standby.following.heard < 10.0 and not standby.holds_every_durable_push(now=standby.following.heard):
        return unconvinced(standby, peer, hello, now=now)
    assert standby.run is not None
    server, effects = standby._serve(standby.run, "anybody", now=now)
    return effects + server.receive(peer, hello, now=now)


def _at_the_word_of_a_served_worker(testimony: Any, hello: Any, *rest: Any, **named: Any) -> Any:
    """Of a worker that the primary has served, whenever that was."""
    if hello.served_seconds is None:
        return testimony(hello, *rest, **named)
    return testimony(msgspec.structs.replace(hello, served_seconds=1e6, silent_seconds=1e6), *rest, **named)


MUTANTS = {
    "a ledger forgets one sequence": Mutant(_instead(Ledger, "settle", _forgets_one), 10),
    "a standby acknowledges what it has not applied": Mutant(_instead(Following, "_apply", _acknowledges_first), 20),
    "a checkpoint has an older ledger": Mutant(_instead(TrainingRun, "record", _older_ledger), 10),
    "a fence accepts the same epoch": Mutant(_instead(dispatch, "is_fenced_by", _same_epoch), 40),
    "nobody fences a server": Mutant(_instead(dispatch, "is_fenced_by", lambda *_: False), 40),
    "a resend buffer drops the oldest": Mutant(_instead(ResendBuffer, "keep", _drops_the_oldest), 40),
    "a delta leads away from another base": Mutant(_instead(Base, "delta_to", _wrong_base), 10),
    "half a gradient is applied": Mutant(_instead(TrainingRun, "settle", _half), 10),
    "a lease never ends": Mutant(_instead(Membership, "expire", lambda *_, now: []), 20),
    "a round counts a member twice": Mutant(_instead(ConsistencyGate, "waits", _counts_twice), 40),
    "ssp has no slack": Mutant(_instead(ConsistencyGate, "_next_of_ssp", _no_slack), 60),
    "a push is durable before it is written": Mutant(_instead(Checkpoints, "started", _durable_at_once), 40),
    "a push is durable that the standby lacks": Mutant(_instead(Checkpoints, "mark_durable", _without_standby), 60),
    "a process gets the account of the one before": Mutant(_instead(Ledger, "open", _any_process), 40),
    "a promise never ends": Mutant(_instead(Promise, "holds", lambda *_, at: True), 100),
    "a newcomer promotes a standby": Mutant(_instead(Standby, "_unconvinced", _at_the_word_of_anybody), 50),
    "a worker that was served just now promotes a standby": Mutant(
        _instead(standby, "testimony", _at_the_word_of_a_served_worker), 80
    ),
}
