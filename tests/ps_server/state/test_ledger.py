"""Each push is settled once, in whatever order pushes arrive; and the ledger of a checkpoint."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol.messages import Opened
from ps_common.protocol.record import Account
from ps_server.state.ledger import Ledger
from tests.rows import row
from tests.simulation.violations import of_ledger

WINDOW = 8


def opened(ledger: Ledger, worker: str, incarnation: int, *, oldest: int = 1, key: str = "") -> Account:
    """The account of the process with this number. Each process has its own secret."""
    proof = proof_of(incarnation)
    return ledger.open(worker, Opened(incarnation=incarnation, proof=proof, key=key, oldest=oldest, environments=1))


def proof_of(incarnation: int) -> str:
    return f"process-{incarnation}"


def read_back(accounts: dict[str, Account]) -> dict[str, Account]:
    """The accounts as a file keeps them."""
    return msgspec.json.decode(msgspec.json.encode(accounts), type=dict[str, Account])


def a_ledger(*settled: int, incarnation: int = 1) -> Ledger:
    """The ledger of one worker "a" with these pushes settled."""
    ledger = Ledger(WINDOW)
    opened(ledger, "a", incarnation)
    for sequence in settled:
        ledger.settle("a", sequence)
    return ledger


def standings(ledger: Ledger, *sequences: int) -> list[str]:
    return [ledger.judge("a", sequence) for sequence in sequences]


# -- by example -------------------------------------------------------------------------------------------------------


def test_no_more_pushes_of_a_process_that_was_forgotten_and_joins_again_are_durable_than_are_settled() -> None:
    ledger = a_ledger(1, 2)
    saved = ledger.record()
    del ledger.accounts["a"]
    opened(ledger, "a", 1)
    ledger.mark_durable(saved)
    assert (ledger.accounts["a"].durable, list(of_ledger(ledger))) == (0, [])


def test_an_account_never_grows_beyond_its_window() -> None:
    """ps-lite keeps every acknowledged key for ever (resender.h, `acked_`)."""
    ledger = a_ledger()
    for sequence in range(1, 5001):
        ledger.settle("a", sequence)
    assert (ledger.accounts["a"].through, ledger.accounts["a"].early) == (5000, set())


def test_pushes_that_are_never_resent_count_as_settled() -> None:
    for oldest, through, early in [
        (1, 0, {3, 4, 6}),
        (2, 1, {3, 4, 6}),
        (3, 4, {6}),
        (4, 4, {6}),
        (6, 6, set()),
        (7, 6, set()),
        (100, 99, set()),
    ]:
        with row(oldest, through, early):
            ledger = a_ledger(3, 4, 6)
            opened(ledger, "a", 1, oldest=oldest)
            assert (ledger.accounts["a"].through, ledger.accounts["a"].early) == (through, early)


def test_only_what_a_complete_checkpoint_holds_is_durable() -> None:
    ledger = a_ledger(1, 2, 4)
    kept = ledger.record()
    ledger.settle("a", 3)
    assert ledger.accounts["a"].durable == 0
    ledger.mark_durable(kept)
    assert ledger.accounts["a"].durable == 2, "4 was beyond a gap, and 3 came after the checkpoint"


def test_a_restored_ledger_knows_what_was_settled_and_all_of_it_is_durable() -> None:
    original = a_ledger(1, 2, 4, incarnation=3)
    opened(original, "b", 5)
    original.change("b", reported=6)
    ledger = Ledger(WINDOW)
    ledger.restore(read_back(original.record()))
    assert standings(ledger, 1, 2, 3, 4, 5) == ["settled", "settled", "new", "settled", "new"]
    a, b = ledger.accounts["a"], ledger.accounts["b"]
    assert (a.incarnation, a.number, a.durable) == (3, 0, 2)
    assert (b.incarnation, b.number, b.reported) == (5, 1, 6)
    assert opened(ledger, "c", 1).number == 2


def test_what_a_checkpoint_keeps_does_not_change_with_the_ledger() -> None:
    ledger = a_ledger(1, 3)
    kept = ledger.record()
    before = copy.deepcopy(kept)
    ledger.settle("a", 2)
    opened(ledger, "b", 1)
    assert kept == before


# -- against a model that remembers everything ------------------------------------------------------------------------


@dataclass
class Remembered:
    """The slow, obvious ledger of one worker: every settled sequence, by incarnation."""

    incarnation: int = 1
    settled: set[int] = field(default_factory=set)

    def through(self) -> int:
        return next(number for number in range(len(self.settled) + 1) if number + 1 not in self.settled)

    def standing(self, sequence: int) -> str:
        if sequence in self.settled:
            return "settled"
        oldest_unsettled = self.through() + 1
        return "new" if sequence - oldest_unsettled < WINDOW else "outside window"


@given(st.lists(st.integers(1, 40), max_size=120))
def test_any_order_with_repetitions_settles_each_push_once(arrivals: list[int]) -> None:
    ledger, model, applied = a_ledger(), Remembered(), []
    for sequence in arrivals:
        standing = ledger.judge("a", sequence)
        assert standing == model.standing(sequence)
        if standing == "new":
            ledger.settle("a", sequence)
            model.settled.add(sequence)
            applied.append(sequence)
        assert ledger.accounts["a"].through == model.through()
        assert len(ledger.accounts["a"].early) < WINDOW
    assert len(applied) == len(set(applied))


@given(st.permutations(range(1, 2 * WINDOW)))
def test_a_worker_that_sends_again_what_was_refused_gets_everything_settled(order: list[int]) -> None:
    ledger, applied = a_ledger(), []
    while waiting := [sequence for sequence in order if ledger.judge("a", sequence) != "settled"]:
        for sequence in waiting:
            if ledger.judge("a", sequence) == "new":
                ledger.settle("a", sequence)
                applied.append(sequence)
    assert sorted(applied) == sorted(order)


events = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 20)),
    st.tuples(st.just("restart"), st.integers(1, 3)),
    st.sampled_from([("start saving", 0), ("saved", 0), ("crash", 0)]),
)


@given(st.lists(events, max_size=80))
def test_through_restarts_and_crashes_the_ledger_equals_a_perfect_memory(happened: list[tuple[str, int]]) -> None:
    """The worker restarts with another incarnation; the server crashes back to its newest complete checkpoint."""
    ledger, model, durable = a_ledger(), Remembered(), 0
    complete: tuple[dict[str, Account], Remembered] = (ledger.record(), copy.deepcopy(model))
    writing = complete
    for event, number in happened:
        match event:
            case "push":
                assert ledger.judge("a", number) == model.standing(number)
                if model.standing(number) == "new":
                    ledger.settle("a", number)
                    model.settled.add(number)
            case "restart":
                if number >= model.incarnation:  # others are not admitted
                    opened(ledger, "a", number)
                if number > model.incarnation:
                    model, durable = Remembered(number), 0
            case "start saving":
                writing = (ledger.record(), copy.deepcopy(model))
            case "saved":
                complete = writing
                ledger.mark_durable(complete[0])
                if complete[1].incarnation == model.incarnation:
                    durable = max(durable, complete[1].through())
            case "crash":
                ledger = Ledger(WINDOW)
                ledger.restore(read_back(complete[0]))
                model = copy.deepcopy(complete[1])
                writing, durable = complete, model.through()
        assert ledger.accounts["a"].incarnation == model.incarnation
        assert ledger.accounts["a"].through == model.through()
        assert ledger.accounts["a"].durable == durable


def test_what_is_durable_of_a_process_is_not_of_its_next_incarnation() -> None:
    """A client that has forgotten its incarnation and kept its secret begins at sequence 1 again."""
    first = Opened(incarnation=1, proof="p", key="", oldest=1, environments=1)
    ledger = a_ledger()
    ledger.open("again", first)
    ledger.settle("again", 1)
    saved = ledger.record()
    ledger.open("again", msgspec.structs.replace(first, incarnation=2, proof="another"))
    account = ledger.open("again", msgspec.structs.replace(first, incarnation=3))
    ledger.mark_durable(saved)
    assert (account.through, account.durable) == (0, 0)
    assert list(of_ledger(ledger)) == []


# -- the cost of a checkpoint -----------------------------------------------------------------------------------------


def many(count: int) -> Ledger:
    """So many workers, each with a push that is durable."""
    ledger = Ledger(WINDOW)
    for number in range(count):
        opened(ledger, f"w{number}", 1)
        ledger.settle(f"w{number}", 1)
    ledger.mark_durable(ledger.record())
    assert not list(of_ledger(ledger))
    return ledger


def replaced(ledger: Ledger, what: Callable[[Ledger], object]) -> int:
    """How many accounts were made anew meanwhile."""
    before = ledger.record()
    what(ledger)
    return sum(before.get(name) is not account for name, account in ledger.record().items())


@pytest.mark.parametrize("count", [10, 1000])
def test_what_a_checkpoint_costs_depends_on_the_workers_that_pushed_since_the_last_and_not_on_all_names(
    count: int,
) -> None:
    ledger = many(count)

    def between_two_checkpoints(ledger: Ledger) -> None:
        for worker in ("w1", "w5"):
            ledger.settle(worker, 2)
        saved = ledger.record()
        ledger.settle("w5", 3)
        ledger.mark_durable(saved)

    assert replaced(ledger, between_two_checkpoints) == 2
    assert [ledger.accounts[worker].durable for worker in ("w1", "w5", "w7")] == [2, 2, 1]


# -- what is forgotten ------------------------------------------------------------------------------------------------


def test_of_many_names_the_oldest_that_cannot_be_expected_back_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ps_server.state.ledger.MOST_KEPT", 6)
    ledger = many(8)

    def to_forget() -> list[str]:
        return ledger.to_forget(lambda name: name in ("w0", "w2", "w3"))

    assert to_forget() == ["w1"]
    ledger.open("new", Opened(incarnation=1, proof="p", key="", oldest=1, environments=1, forgotten=("w1",)))
    assert (len(ledger.accounts), ledger.superseded, "w1" in ledger.accounts) == (8, 1, False)
    assert to_forget() == ["w4", "w5", "w6", "w7"], "those that are needed are looked at last"
