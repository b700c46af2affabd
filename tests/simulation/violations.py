"""What cannot be in the state of a server and of its standby; a simulated cluster looks at each step."""

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from ps_server.machine.checkpoints import NOTHING
from ps_server.machine.parameter_server import ParameterServer
from ps_server.standby.standby import Standby
from ps_server.state.ledger import Ledger
from ps_server.state.training_run import TrainingRun
from ps_server.state.weight_store import WeightStore

_seen: WeakKeyDictionary[WeightStore, int] = WeakKeyDictionary()  # the version at the last look


def violations_at(machine: ParameterServer | Standby) -> str:
    """The violations, as one sentence; "" if there are none."""
    if isinstance(machine, Standby):
        return "; ".join(_of_copy(machine)) if machine.server is None else violations_at(machine.server)
    return "; ".join(_of_server(machine))


def _of_server(server: ParameterServer) -> Iterator[str]:
    yield from _of_checkpoints(server)
    yield from _of_grants(server)
    if server.run is not None:
        yield from _of_backlog(server)
        yield from _of_run(server.run)
        yield from _of_members(server)
        yield from _of_gate(server)


def _of_copy(standby: Standby) -> Iterator[str]:
    following = standby.following
    if (replay := following._replay) is not None:
        yield from _of_run(replay._run)
        if (position := replay._run.log.position + len(replay._group)) != following.position:
            yield f"the copy is at position {position} after update {following.position}"


def _of_run(run: TrainingRun) -> Iterator[str]:
    yield from of_ledger(run.ledger)
    yield from _of_progress(run)
    yield from of_weights(run.store) if run.store is not None else ()


def of_ledger(ledger: Ledger) -> Iterator[str]:
    for worker, account in ledger.accounts.items():
        if account.durable > account.through:
            yield f"{worker}: {account.durable} of its pushes are durable, and {account.through} are settled"
        if account.early and min(account.early) <= account.through + 1:
            yield f"{worker}: all up to {account.through} are settled, and {min(account.early)} is beyond a gap"


def _of_progress(run: TrainingRun) -> Iterator[str]:
    one = run.progress
    least = min(one.global_steps, one.updates, one.episodes, one.staleness_sum, *one.staleness_counts)
    if least < 0:
        yield f"a counter of the run's progress is {least}"
    if sum(one.staleness_counts) > one.updates:
        yield f"{sum(one.staleness_counts)} updates have a staleness, and {one.updates} were made"
    if len(one._returns) > one.episodes:
        yield f"{len(one._returns)} games have a return, and {one.episodes} were played"


def of_weights(store: WeightStore) -> Iterator[str]:
    """The versions, also since the last call, and the sums in the statistics."""
    before, _seen[store] = _seen.get(store, 0), store.version
    if store.version < before:
        yield f"the weights are of version {store.version}, and were of version {before}"
    if not 0 < store.target_version <= store.version:
        yield f"the target weights are of version {store.target_version}, and the weights of {store.version}"
    flat = store.flat.numpy()
    for path, (count, _, squares) in store.schema.moments.items():
        if flat.item(count.start) < 0 or (flat[squares] < 0).any():
            yield f"{path}.count or {path}.squares is below 0, and each is a sum of what is not"


def _of_checkpoints(server: ParameterServer) -> Iterator[str]:
    position, known = server.run.log.position if server.run is not None else 0, server.checkpoints
    if max(one.position for one in (known.saved, *known._undurable, known._writing or NOTHING)) > position:
        yield f"a checkpoint is of a later position than the run, {position}"


def _of_grants(server: ParameterServer) -> Iterator[str]:
    budget = server.pushes.budget
    if budget._granted_bytes > budget._budget_bytes and len(budget._granted) > 1:
        yield f"{budget._granted_bytes} bytes are granted, and the budget has {budget._budget_bytes}"


def _of_backlog(server: ParameterServer) -> Iterator[str]:
    if (standby := server.replication._following) is None:
        return
    backlog, newest = standby.backlog, server.decided.log.position
    numbers = [item.message.number for item in backlog._queue]
    first = backlog.acknowledged + 1 if backlog.acknowledged or not numbers else numbers[0]
    if numbers != list(range(first, newest + 1)):
        yield f"the standby has acknowledged {backlog.acknowledged} of {newest} updates, and {len(numbers)} wait"
    sizes = [item.size for item in backlog._queue]
    if sum(sizes) != backlog._bytes:
        yield f"{backlog._bytes} bytes count as waiting for the standby, and {sum(sizes)} do"


def _of_members(server: ParameterServer) -> Iterator[str]:
    members, accounts = server.membership, server.decided.ledger.accounts
    if members._living.keys() != {member.worker_id for member in members._by_id.values() if member.alive}:
        yield f"{len(members._living)} workers count as alive, and the leases of others run"
    if len(members._by_peer) != len(members._by_id):
        yield f"{len(members._by_id)} members have {len(members._by_peer)} connections"
    for worker, member in members._by_id.items():
        if members._by_peer.get(member.peer) is not member:
            yield f"{worker}: its connection is another member's"
        account = accounts.get(worker)
        if account is None or account.incarnation != member.incarnation:
            yield f"{worker}: process {member.incarnation} is a member and has no account"
        elif (counted := member.pushes + member.discarded) > (settled := account.through + len(account.early)):
            yield f"{worker}: {counted} pushes are applied or discarded, and {settled} are settled"


def _of_gate(server: ParameterServer) -> Iterator[str]:
    """By worker; a push may wait as far as the window beyond the last that is settled."""
    gate, ledger, waiting_bytes = server.pushes.gate, server.decided.ledger, 0
    for worker, pushes in gate._waiting.items():
        waiting_bytes += sum(push.size for push in pushes.values())
        account = ledger.accounts.get(worker)
        if account is None:
            yield f"{worker}: pushes of it wait, and it has no account"
        elif not account.through < min(pushes, default=0) <= max(pushes, default=0) <= account.through + ledger.window:
            yield f"{worker}: pushes {sorted(pushes)} wait, and those up to {account.through} are settled"
    if waiting_bytes != gate.waiting_bytes:
        yield f"{gate.waiting_bytes} bytes count as waiting, and {waiting_bytes} do"
