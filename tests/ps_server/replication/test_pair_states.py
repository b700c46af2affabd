"""The two tables of a pair: what holds of every path through them."""

import enum
from collections.abc import Mapping

import pytest

from ps_server.replication.pair_states import AT_PRIMARY, AT_STANDBY, AtPrimary, AtStandby, OfPrimary, OfStandby

Table = Mapping[enum.Enum, Mapping[enum.Enum, enum.Enum]]


def reachable(table: Table, start: enum.Enum, without: frozenset[enum.Enum] = frozenset()) -> set[enum.Enum]:
    """The states that some events lead to."""
    found, new = {start}, [start]
    while new:
        for event, state in table[new.pop()].items():
            if event not in without and state not in found:
                found.add(state)
                new.append(state)
    return found


@pytest.mark.parametrize(
    ("table", "start", "states"),
    [(AT_PRIMARY, AtPrimary.TRANSFER, AtPrimary), (AT_STANDBY, AtStandby.TRANSFER, AtStandby)],
)
def test_every_state_has_a_row_and_a_way_to_it(table: Table, start: enum.Enum, states: type[enum.Enum]) -> None:
    assert set(table) == reachable(table, start) == set(states)


def test_a_standby_that_is_gone_or_promoted_is_so_for_good() -> None:
    assert AT_PRIMARY[AtPrimary.GONE] == {}
    assert AT_STANDBY[AtStandby.PROMOTED] == {}


def test_no_standby_is_in_sync_before_it_was_bound() -> None:
    """Else a push could be durable without it when it may be promoted."""
    assert AtPrimary.IN_SYNC not in reachable(AT_PRIMARY, AtPrimary.TRANSFER, frozenset({OfStandby.KEEPS_UP}))


def test_workers_promote_only_a_standby_that_a_promise_bound() -> None:
    """By arbiter, admin and hand-over it may be promoted without."""
    others = frozenset({OfPrimary.ARBITER, OfPrimary.ADMIN, OfPrimary.HANDS_OVER})
    assert AtStandby.PROMOTED in reachable(AT_STANDBY, AtStandby.TRANSFER, others)
    promised = others | {OfPrimary.PROMISE, OfPrimary.DIED_BOUND}
    assert AtStandby.PROMOTED not in reachable(AT_STANDBY, AtStandby.TRANSFER, promised)
    newcomers = [state for state, events in AT_STANDBY.items() if OfPrimary.ANY_WORKER in events]
    assert newcomers == [AtStandby.BEREFT], "elsewhere a broken wire would be enough"


def test_a_dropped_standby_is_promoted_by_no_worker_before_it_follows_again() -> None:
    workers = {OfPrimary.WITNESS, OfPrimary.ANY_WORKER, OfPrimary.PROMISE}
    for state in (AtStandby.TRANSFER, AtStandby.DROPPED):
        assert not workers & AT_STANDBY[state].keys()
