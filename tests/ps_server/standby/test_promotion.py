"""Who may promote a standby: the table of PROTOCOL.md, each row and each event of it."""

from dataclasses import dataclass

import msgspec
import pytest

from ps_common.protocol import messages
from ps_server.machine.parts import Sender
from ps_server.replication.replication import LEASE_SECONDS
from ps_server.standby.promotion import Claim, Promise
from ps_server.state.effects import ClaimRun, DropClaim, Send
from tests.ps_server.standby.test_standby import refusal
from tests.ps_server.standby_transcripts import PRIMARY, WithStandby
from tests.ps_server.transcripts import EPOCH, a_lineage, later, notes, only

WEEK = 7 * 86400.0
NEWCOMERS = {
    "nothing": {},
    "a long silence": {"silent_seconds": WEEK, "served_seconds": WEEK},
    "the run alone": {"run_id": later()["run_id"], "silent_seconds": WEEK, "served_seconds": WEEK},
    "a forged epoch": {**later(), "epoch_proof": "f" * 32, "silent_seconds": WEEK, "served_seconds": WEEK},
    "an earlier epoch": {**later(EPOCH - 1), "silent_seconds": 2.0, "served_seconds": 2.0},
    "no silence": {**later(EPOCH), "served_seconds": WEEK},
    "an epoch alone": {**later(EPOCH), "silent_seconds": 2.0},
}


def code_of(server: WithStandby, hello: messages.Hello) -> str:
    """The code with which the standby refuses, "" where it serves."""
    effects = server.ask_standby(hello, peer=hello.worker_id)
    return "" if server.standby.server is not None else refusal([one for one in effects if isinstance(one, Send)]).code


def cut_off(seconds: float) -> WithStandby:
    """The wire between the servers breaks; the primary lives on, serves both workers, and saves."""
    server = WithStandby.following()
    server.is_cut = True
    for sequence in range(1, round(seconds) + 1):
        server.push("a", sequence)
        server.push("b", sequence)
        server.pass_time(1.0)
    if server.machine.checkpoints.is_writing:
        server.machine.checkpoint_saved("by its own schedule")
    server.save_and_complete()
    assert server.heartbeat("a").durable == (round(seconds) if seconds > LEASE_SECONDS else 0)
    return server


@pytest.mark.parametrize("says", NEWCOMERS.values(), ids=NEWCOMERS)
@pytest.mark.parametrize("seconds", [2.0, 5.0, 15.0, WEEK])
def test_who_proves_nothing_of_the_run_promotes_nobody(says: dict[str, object], seconds: float) -> None:
    """For however long the primary was silent, and whether it is dead or not."""
    server = WithStandby.following()
    server.is_cut = True
    server.now += seconds
    server.standby.tick(now=server.now)
    assert code_of(server, server.hello_of("newcomer", **says)) == "standby"
    assert server.standby.run is not None


def test_a_newcomer_is_told_to_ask_the_others_and_what_an_admin_may_do() -> None:
    server = WithStandby.following()
    server.silence(2.0)
    reason = refusal(server.ask_standby(server.hello_of("newcomer"), peer="newcomer")).reason
    assert "ask the other addresses" in reason
    assert f"ps-ctl promote --server {server.standby.address}" in reason


@pytest.mark.parametrize("seconds", [2.0, 4.0, 12.0])
def test_a_worker_that_was_served_until_the_standby_lost_the_primary_promotes_it(seconds: float) -> None:
    server = WithStandby.following()
    server.silence(seconds)
    assert code_of(server, server.witness("a")) == ""


@pytest.mark.parametrize("silent", [1.0, 2.0])
@pytest.mark.parametrize("seconds", [4.0, 60.0])
def test_a_worker_that_was_served_after_that_promotes_nobody_though_the_primary_is_silent_to_it_now(
    seconds: float, silent: float
) -> None:
    server = cut_off(seconds)
    server.silence(silent)
    hello = server.witness("a", served_seconds=silent, silent_seconds=silent)
    assert code_of(server, hello) == "lacking"
    assert code_of(server, server.witness("b")) == "lacking", "nor does any other, from then on"


def test_it_is_forgotten_that_the_primary_went_on_alone_once_it_is_heard_again() -> None:
    server = cut_off(5.0)
    server.silence(2.0)
    assert code_of(server, server.witness("a", served_seconds=2.0, silent_seconds=2.0)) == "lacking"
    server.is_cut = False
    server.pass_time(8.0)
    server.silence(2.0)
    assert code_of(server, server.witness("a", oldest=6)) == ""


def test_a_worker_that_was_paused_is_no_witness_for_the_time_of_its_pause() -> None:
    server = WithStandby.following()
    server.silence(30.0)
    assert code_of(server, server.witness("a", silent_seconds=2.0)) == "standby", "nobody was asked for 28 seconds"
    assert code_of(server, server.witness("b")) == ""


def test_a_promise_holds_until_its_lease_ends_and_not_for_what_is_not_applied() -> None:
    promise = Promise()
    assert not promise.holds(10, at=0.0)
    promise.renew(5, sent=100.0)
    assert [promise.holds(applied, at=102.0) for applied in (4, 5, 6)] == [False, True, True]
    assert [promise.holds(5, at=at) for at in (100.0 + LEASE_SECONDS - 0.01, 100.0 + LEASE_SECONDS)] == [True, False]
    promise.ended = 101.0
    assert promise.holds(5, at=WEEK), "nothing becomes durable at a server that is gone"


# -- an admin ---------------------------------------------------------------------------------------------------------


def promoted(server: WithStandby, reason: str = "the host burnt down") -> messages.Promoted:
    effects = server.ask_standby(messages.Promote(request=7, reason=reason), peer="ps-ctl")
    (message,) = [one.message for one in effects if isinstance(one, Send)]
    assert isinstance(message, messages.Promoted)
    assert message.request == 7
    return message


def refused(server: WithStandby, **fields: str) -> messages.Refused:
    return refusal(server.ask_standby(messages.Promote(request=7, **fields), peer="ps-ctl"))  # type: ignore[arg-type]


def test_an_admin_promotes_a_standby_with_a_reason_which_the_log_keeps() -> None:
    server = WithStandby.following()
    server.silence(2.0)
    reply = promoted(server)
    assert server.standby.server is not None
    assert (reply.version, reply.epoch) == (1, server.standby.server.epoch)
    assert any("an admin: the host burnt down" in note for note in notes(server.told))
    again = server.ask_standby(messages.Promote(request=8, reason="again"), peer="ps-ctl")
    assert isinstance(only(Send, again).message, messages.Promoted), "its reply was lost"


def test_without_a_reason_an_admin_is_told_what_may_be_lost() -> None:
    server = WithStandby.following()
    server.silence(2.0)
    assert (refused(server).code, "nothing is lost that was durable" in refused(server).reason) == ("no_reason", True)
    server.silence(30.0)
    told = refused(server)
    assert told.code == "no_reason"
    assert f"whatever {PRIMARY} did after version 1 may be lost" in told.reason
    assert "has not been in touch with it for 32 s" in told.reason
    assert server.standby.server is None


def test_an_admin_is_told_what_a_worker_has_shown() -> None:
    server = cut_off(5.0)
    server.silence(2.0)
    code_of(server, server.witness("a", oldest=4, served_seconds=2.0, silent_seconds=2.0))
    assert "3 pushes that a has dropped" in refused(server).reason
    assert promoted(server).lost.count("3 pushes that a has dropped")


def test_without_an_admins_key_nobody_promotes_a_standby() -> None:
    server = WithStandby.following()
    server.silence(2.0)
    promote, worker = messages.Promote(request=1, reason="mine"), Sender(key="k", is_admin=False)
    assert refusal(server.standby.receive(b"x", promote, now=server.now, sender=worker)).code == "not_admin"
    assert server.standby.server is None


# -- the arbiter ------------------------------------------------------------------------------------------------------


@dataclass
class Arbitrated:
    """A standby with an arbiter, after a silence."""

    server: WithStandby

    @classmethod
    def after(cls, seconds: float) -> "Arbitrated":
        server = WithStandby.seeded(workers=("a", "b"))
        assert isinstance(server, WithStandby)
        server.standby = server.new_standby(has_arbiter=True)
        server.pass_time(2.0)
        server.push("a", 1)
        server.pass_time(1.0)
        server.silence(seconds)
        return cls(server)

    def ask(self) -> list[type]:
        """A newcomer asks: what the standby does."""
        return [type(one) for one in self.server.ask_standby(self.server.hello_of("new"), peer="new")]

    def replies(self, claim: Claim) -> list[type]:
        return [type(one) for one in self.server.standby.claimed(claim, now=self.server.now)]

    def granted(self, **account: int) -> Claim:
        run = self.server.run
        record = run.record(now=self.server.now)
        saved = {name: msgspec.structs.replace(one, **account) for name, one in record.ledger.items() if name == "a"}
        return Claim("says yes", lineage=run.lineage, checkpoint=msgspec.structs.replace(record, ledger=saved))


def test_the_arbiter_is_asked_once_at_a_time_and_promotes_at_the_word_of_anybody() -> None:
    case = Arbitrated.after(2.0)
    assert case.ask() == [Send, ClaimRun]
    assert case.ask() == [Send]
    case.replies(case.granted())
    assert case.server.standby.server is not None


@pytest.mark.parametrize("why", ["says no: it lives", "says no: the disk is gone"])
def test_without_a_grant_nobody_is_promoted_and_the_arbiter_is_asked_again(why: str) -> None:
    case = Arbitrated.after(2.0)
    case.ask()
    assert case.replies(Claim(why)) == []
    case.server.silence(2.0)
    assert why in refusal(case.server.ask_standby(case.server.hello_of("b"), peer="b")).reason or case.ask()
    assert case.server.standby.server is None


def test_a_grant_is_given_back_where_the_primary_has_more_or_is_heard_again() -> None:
    case = Arbitrated.after(2.0)
    case.ask()
    assert case.replies(case.granted(through=9)) == [DropClaim]
    assert code_of(case.server, case.server.hello_of("new")) == "lacking"
    other = Arbitrated.after(2.0)
    other.ask()
    other.server.is_cut = False
    other.server.pass_time(0.5)
    assert other.replies(other.granted()) == [DropClaim]
    third = Arbitrated.after(2.0)
    third.ask()
    assert third.replies(Claim("says yes", lineage=a_lineage(run_id="another"))) == [DropClaim]
    assert {one.server.standby.server for one in (case, other, third)} == {None}


def test_with_an_arbiter_a_witness_alone_promotes_nobody() -> None:
    case = Arbitrated.after(2.0)
    assert code_of(case.server, case.server.witness("a")) == "standby"


def test_a_primary_that_lives_is_replaced_by_no_admin() -> None:
    server = WithStandby.following()
    assert refused(server, reason="why not").code == "primary_lives"
