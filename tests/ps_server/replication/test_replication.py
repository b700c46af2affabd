"""The primary's side: what it sends to its standby and when, and which pushes are durable."""

from itertools import product
from typing import Any

import pytest

from ps_common.protocol import messages
from ps_common.release import release
from ps_common.settings.run_spec import OPTIMIZER_SETTINGS
from ps_server.machine.ending import FAREWELL_SECONDS, Phase
from ps_server.machine.parts import ANYBODY, Sender
from ps_server.replication.replication import LEASE_SECONDS
from ps_server.replication.standby_copy import SMALL_WINDOW
from ps_server.state.effects import SaveCheckpoint
from tests.ps_server.standby_transcripts import STANDBY
from tests.ps_server.transcripts import EPOCH, RUN_ID, Transcript, a_lineage, encoded, exits, later, notes, only, sends
from tests.rows import row


class Primary(Transcript):
    """The test is the standby."""

    def follow(self, request: int = 1, address: str = STANDBY, peer: str = "s") -> list[Any]:
        return self.sent(self.say(peer, messages.Follow(request=request, address=address, release=release())), peer)

    def followed(
        self, number: int, *, through: int = 0, request: int = 0, follow: int = 1, peer: str = "s"
    ) -> list[Any]:
        ack = messages.Followed(request=request, follow=follow, number=number, durable_through=through)
        return self.sent(self.say(peer, ack), peer)

    @staticmethod
    def sent(effects: Any, peer: str = "s") -> list[Any]:
        return [send.message for send in sends(effects) if send.to == peer.encode()]

    def updates(self) -> list[int]:
        """Numbers of what the newest message or tick has sent to the standby."""
        return [message.number for message in self.sent(self.effects) if isinstance(message, messages.Update)]

    def durable(self, worker: str = "a") -> int:
        return self.heartbeat(worker).durable


def followed_server() -> Primary:
    """A run with a standby that has its state, and no checkpoint under way."""
    server = Primary.seeded(workers=("a", "b"))
    assert isinstance(server, Primary)
    (state,) = server.follow()
    assert isinstance(state, messages.State)
    server.followed(state.number)
    server.after(1.0)
    server.machine.checkpoint_saved("with the standby's address")
    server.followed(state.number, through=state.number)
    return server


def test_the_newest_checkpoint_says_whether_the_standby_follows_whenever_that_changes() -> None:
    """A primary that is restarted alone asks first, if its standby may have been promoted."""
    server = Primary.seeded(workers=("a", "b"))
    assert not server.save_and_complete().record.is_followed
    for request in (1, 2):
        server.follow(request)
        saved = only(SaveCheckpoint, server.after(1.0))
        assert (saved.record.standby, saved.record.is_followed) == (STANDBY, True)
        server.machine.checkpoint_saved("with the standby")
        server.after(LEASE_SECONDS + 0.1)
        server.push("a", server.run.ledger.accounts["a"].through + 1)
        assert not server.save_and_complete().record.is_followed, "it is gone"


def test_a_standby_that_may_take_over_before_the_run_went_back_keeps_pushes_from_being_durable() -> None:
    server = followed_server()
    server.push("a", 1)
    server.save_and_complete()
    assert server.durable() == 0, "the standby lacks it"
    server.machine.replication.rolled_back()
    server.after(0.25)
    assert server.durable() == 0
    server.after(LEASE_SECONDS)
    assert server.durable() == 1


def test_a_standby_that_had_everything_before_the_run_went_back_has_nothing_of_it_afterwards() -> None:
    server = followed_server()
    server.machine.replication.rolled_back()
    server.push("a", 1)
    server.save_and_complete()
    assert server.durable() == 0


def test_what_changes_the_run_is_sent_in_order_a_window_at_a_time() -> None:
    server = followed_server()
    first = server.machine.run.log.position + 1
    for sequence in range(1, SMALL_WINDOW + 3):
        server.push("a", sequence)
        assert server.updates() == ([first + sequence - 1] if sequence <= SMALL_WINDOW else [])
    server.followed(first)
    assert server.updates() == [first + SMALL_WINDOW]
    server.followed(first + SMALL_WINDOW)
    assert server.updates() == [first + SMALL_WINDOW + 1]


def test_followed_is_answered_with_what_is_durable_without_the_standby() -> None:
    server = Primary.seeded()
    assert isinstance(server, Primary)
    server.follow()
    (leading,) = server.followed(0, request=8)
    assert (leading.request, leading.epoch, leading.run_id, leading.durable_through) == (8, EPOCH, RUN_ID, 0)
    server.push("a", 1)
    *_, leading = server.followed(server.run.log.position - 1, request=9)
    assert leading.durable_through == server.run.log.position, (
        "the push may have been durable before the standby had the state"
    )


def test_another_standby_is_refused_until_the_lease_of_the_first_has_ended() -> None:
    server = followed_server()
    assert [message.code for message in server.follow(address="third:1", peer="t")] == ["followed"]
    server.after(LEASE_SECONDS + 0.5)
    assert notes(server.effects) == [f"the standby {STANDBY} is gone; checkpoints alone count again"]
    assert [type(message) for message in server.follow(address="third:1", peer="t")] == [messages.State]


# -- durability -------------------------------------------------------------------------------------------------------


def test_a_push_is_durable_when_it_is_on_disk_and_at_the_standby() -> None:
    server = followed_server()
    server.push("a", 1)
    (number,) = server.updates()
    server.save_and_complete()
    assert server.durable() == 0
    server.followed(number)
    assert server.durable() == 1


def test_when_the_lease_of_the_standby_ends_checkpoints_alone_count() -> None:
    server = followed_server()
    server.push("a", 1)
    server.save_and_complete()
    server.after(LEASE_SECONDS - 0.5)
    assert server.durable() == 0
    server.after(1.0)
    assert server.durable() == 1


# -- fencing ----------------------------------------------------------------------------------------------------------


def a_fence(**fields: Any) -> messages.Fence:
    known: dict[str, Any] = later() | {"address": STANDBY}
    return messages.Fence(request=5, **known | fields)


def test_a_server_that_was_replaced_changes_nothing_more_sends_everybody_away_and_exits() -> None:
    server = followed_server()
    told = [send.message for send in sends(server.say("s", a_fence()))]
    assert [message.code for message in told if isinstance(message, messages.Refused)] == ["fenced"] * 3
    assert exits(server.effects) == [], "they have to read it first"
    assert server.refusal("a", server.push_of(1)).code == "fenced"
    (exit_,) = exits(server.after(FAREWELL_SECONDS))
    assert f"{STANDBY} serves this run now" in exit_.reason
    assert f"ps-server --standby-of {STANDBY} --run-dir FOLDER" in exit_.reason
    assert server.machine.version == 1
    assert server.after(1.0) == []
    assert server.machine.save(now=server.now) == []


CLAIMS = {
    "another run": later(run_id="another"),
    "no run": later(run_id=""),
    "this epoch": later(EPOCH),
    "an earlier epoch": later(EPOCH - 1),
    "no proof": later() | {"epoch_proof": ""},
    "the proof of this epoch": later() | {"epoch_proof": a_lineage(EPOCH).proof},
    "the proof of another run": later() | {"epoch_proof": a_lineage(EPOCH + 1, "another").proof},
    "the highest number that can be said": later() | {"latest_epoch": messages.MOST},
}


def test_a_claim_that_a_server_was_replaced_needs_the_proof_of_the_later_epoch() -> None:
    for what, claim, has_standby, sender in product(
        ["HELLO", "FENCE"], CLAIMS.values(), [False, True], [ANYBODY, Sender(key="k", is_admin=False)]
    ):
        with row(what, claim, has_standby, sender):
            server = followed_server() if has_standby else Transcript.seeded()
            message = server.hello_of("b", **claim) if what == "HELLO" else a_fence(**claim)
            server.machine.receive(b"b", message, now=server.now, sender=sender)
            assert server.machine.phase is Phase.SERVING
            assert server.machine.lineage == a_lineage()


@pytest.mark.parametrize("message", [messages.Follow(request=1, address="x:1"), a_fence()])
def test_following_and_fencing_take_an_admins_key(message: Any) -> None:
    server = Transcript.seeded()
    (send,) = sends(server.machine.receive(b"x", message, now=server.now, sender=Sender(is_admin=False)))
    assert isinstance(send.message, messages.Refused)
    assert send.message.code == "not_admin"


# -- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("optimizer", OPTIMIZER_SETTINGS)
def test_the_standby_is_sent_the_very_buffers_of_a_push_which_no_optimizer_changes(optimizer: str) -> None:
    """A copy of them would cost more than the update."""
    server = Primary.seeded(workers=("a", "b"), optimizer={"name": optimizer})
    assert isinstance(server, Primary)
    (state,) = server.follow()
    server.followed(state.number)
    buffers = [bytearray(buffer) for buffer in encoded([1.0, -2.0, 3.0])]
    before = [bytes(buffer) for buffer in buffers]
    effects = server.say("a", server.push_of(1), buffers)
    (send,) = [one for one in sends(effects) if isinstance(one.message, messages.Update)]
    assert all(sent is buffer for sent, buffer in zip(send.vector, buffers, strict=True))
    assert buffers == before
