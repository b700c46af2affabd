"""Each invariant that a simulated cluster checks fails on a machine whose state was bent."""

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

from tests.rows import row
from tests.simulation.cluster import Faults, ones
from tests.simulation.kept_requests import violations_of
from tests.simulation.pair import SimulatedPair
from tests.simulation.violations import _seen, violations_at

PUSH_BYTES = 12
SETTINGS = {
    "optimizer": {"name": "sgd"},
    "schedule": {"learning_rate": 1.0},
    "consistency": {"rule": "sync"},
}

Bend = Callable[[SimulatedPair], bool]  # False while there is nothing to bend


def a_pair() -> SimulatedPair:
    """Two workers with pushes of which some wait: for credit, for the slower worker, and for the standby."""
    pair = SimulatedPair(
        workers=2,
        updates=10**6,
        seed=1,
        faults=Faults(longest_delay_seconds=0.2),
        gradient=ones,
        settings=SETTINGS,
        resend_bytes=10**6,
        in_flight=3,
        receive_bytes=PUSH_BYTES,
        checkpoint_takes_seconds=0.3,
    )
    pair.follow()
    return pair


def setting(path: str, change: Callable[[Any], Any]) -> Bend:
    """Another value in place of the one at the end of a path from the pair."""
    way, _, last = path.rpartition(".")

    def bend(pair: SimulatedPair) -> bool:
        owner = attrgetter(way)(pair)
        setattr(owner, last, change(getattr(owner, last)))
        return True

    return bend


def emptying(path: str) -> Bend:
    """A table loses what is in it."""

    def bend(pair: SimulatedPair) -> bool:
        table = attrgetter(path)(pair)
        return bool(table) and table.clear() is None

    return bend


def in_account(**fields: Any) -> Bend:
    """Other values in the account of a worker, at the server or at the standby."""

    def bend(pair: SimulatedPair) -> bool:
        for run in filter(None, (pair.server.run, pair.standby.run)):
            run.ledger.change("w0", **fields)
        return True

    return bend


def in_member(**fields: Any) -> Bend:
    def bend(pair: SimulatedPair) -> bool:
        for name, value in fields.items():
            setattr(pair.server.membership._by_id["w0"], name, value)
        return True

    return bend


def a_version_that_was_higher(pair: SimulatedPair) -> bool:
    assert pair.server.run is not None
    _seen[pair.server.run.weights] = pair.server.version + 10
    return True


def a_game_without_a_number(pair: SimulatedPair) -> bool:
    assert pair.server.run is not None
    pair.server.run.progress._returns.append(1.0)
    return True


def grants_beyond_the_budget(pair: SimulatedPair) -> bool:
    budget = pair.server.pushes.budget
    for peer in (b"one", b"another"):
        budget._granted[peer] = budget._budget_bytes, pair.now
    return True


def a_push_waits_of_a_forgotten_worker(pair: SimulatedPair) -> bool:
    assert pair.server.run is not None
    for worker in pair.server.pushes.gate._waiting:
        pair.server.run.ledger._forget(worker)
        pair.server.membership.forget(worker)
    return bool(pair.server.pushes.gate._waiting)


def a_push_waits_that_is_settled(pair: SimulatedPair) -> bool:
    assert pair.server.run is not None
    for worker in pair.server.pushes.gate._waiting:
        pair.server.run.ledger.change(worker, through=pair.server.run.ledger.accounts[worker].through + 1)
    return bool(pair.server.pushes.gate._waiting)


def updates_that_the_primary_has_not_sent(pair: SimulatedPair) -> bool:
    assert pair.standby.run is not None
    pair.standby.run.log.position += 1000
    pair.standby.run.progress.updates += 1000
    return True


def requests_of(pair: SimulatedPair) -> Any:
    return pair.workers[0].machine._requests


def a_request_twice(pair: SimulatedPair) -> bool:
    requests = requests_of(pair)
    requests._pending.update(list(requests._in_flight.items())[:1])
    return bool(requests._in_flight)


def a_request_that_was_overtaken(pair: SimulatedPair) -> bool:
    requests = requests_of(pair)
    is_there = bool(requests._pending) and any(one.vector for one in requests._in_flight.values())
    if is_there:
        requests._pending[0] = requests._pending.popitem()[1]
    return is_there


def a_push_that_is_not_kept(pair: SimulatedPair) -> bool:
    is_there = any(one.vector for one in requests_of(pair)._in_flight.values())
    if is_there:
        requests_of(pair).resend_buffer.clear()
    return is_there


def more_pushes_than_the_buffer_has_bytes(pair: SimulatedPair) -> bool:
    is_there = len(requests_of(pair).resend_buffer) > 3
    if is_there:
        requests_of(pair).resend_buffer._budget_bytes = 1
    return is_there


def a_push_that_is_settled_without_a_reply(pair: SimulatedPair) -> bool:
    kept = [one for one in requests_of(pair).resend_buffer._kept.values() if not one.replied]
    for one in kept:
        one.settled = True
    return bool(kept)


def a_byte_too_many(pair: SimulatedPair) -> bool:
    requests_of(pair).resend_buffer._bytes += 1
    return True


def pushes_out_of_order(pair: SimulatedPair) -> bool:
    buffer = requests_of(pair).resend_buffer
    buffer._kept = dict(reversed(buffer._kept.items()))
    return len(buffer) > 1


RUN, POOL = "server.run", "server.pushes"
AT_SERVER: dict[str, Bend] = {
    "pushes are durable": in_account(durable=10**6),
    "beyond a gap": in_account(early={1}),
    "a counter of the run's progress": setting(f"{RUN}.progress.staleness_sum", lambda _: -1),
    "updates have a staleness": setting(f"{RUN}.progress.staleness_counts", lambda _: [10**6]),
    "games have a return": a_game_without_a_number,
    "the target weights are": setting(f"{RUN}.weights.version", lambda _: 0),
    "and were of version": a_version_that_was_higher,
    "count as alive": emptying("server.membership._living"),
    "members have": emptying("server.membership._by_peer"),
    "is another member's": in_member(peer=b"elsewhere"),
    "is a member and has no account": in_member(incarnation=99),
    "pushes are applied or discarded": in_member(pushes=10**6),
    "bytes are granted, and the budget": grants_beyond_the_budget,
    "pushes of it wait, and it has": a_push_waits_of_a_forgotten_worker,
    "wait, and those up to": a_push_waits_that_is_settled,
    "bytes count as waiting, and": setting(f"{POOL}.gate.waiting_bytes", lambda before: before + 1),
    "of a later position": setting("server.checkpoints.saved", lambda saved: replace(saved, position=10**6)),
    "the standby has acknowledged": setting(f"{RUN}.log.position", lambda position: position + 1),
    "count as waiting for the standby": setting(
        "server.replication._standby.backlog._bytes", lambda before: before + 1
    ),
}
AT_STANDBY: dict[str, Bend] = {
    "pushes are durable": in_account(durable=10**6),
    "the copy is at position": updates_that_the_primary_has_not_sent,
}
AT_WORKER: dict[str, Bend] = {
    "is pending and in flight": a_request_twice,
    "and a later push is in flight": a_request_that_was_overtaken,
    "and is not kept": a_push_that_is_not_kept,
    "bytes count as kept": a_byte_too_many,
    "and the resend buffer has": more_pushes_than_the_buffer_has_bytes,
    "a push without a reply is settled": a_push_that_is_settled_without_a_reply,
    "pushes are kept out of order": pushes_out_of_order,
}


def test_each_machine_finds_what_is_bent_in_it() -> None:
    for whose, bends in {"server": AT_SERVER, "standby": AT_STANDBY, "worker": AT_WORKER}.items():
        for sentence, bend in bends.items():
            with row(whose, sentence):
                pair = a_pair()
                machines: dict[str, Any] = {"server": pair.server, "standby": pair.standby}
                deadline = pair.now + 5.0
                while not bend(pair):
                    assert pair.now < deadline, "there was nothing to bend"
                    pair.step()
                found = violations_at(machines[whose]) if whose in machines else violations_of(requests_of(pair))
                assert sentence in found
