"""Who may follow a server, what may be followed, and who ends a server: the id of a process, finite weights, proofs."""

import msgspec
import numpy as np
import pytest

from ps_common.protocol import messages
from ps_common.release import release
from ps_server.machine.ending import Phase
from ps_server.replication.standby_copy import state_of
from ps_server.state.effects import LogLine, Send, SendToServer
from tests.ps_server.replication.test_replication import CLAIMS, a_fence
from tests.ps_server.standby_transcripts import STANDBY, WithStandby
from tests.ps_server.transcripts import Transcript, later, only

# -- a standby is known by its process --------------------------------------------------------------------------------


def follow_of(process: str, request: int = 1) -> messages.Follow:
    """The FOLLOW of a program that gives the address of the standby, as in containers on two hosts."""
    return messages.Follow(request=request, address=STANDBY, release=release(), process=process)


def test_two_standbys_with_one_address_do_not_take_the_place_from_each_other() -> None:
    server = WithStandby.following()
    for request in range(1, 40):
        assert server.refusal("the second", follow_of("second", request)).code == "followed"
        server.pass_time(0.5)
    assert server.machine.replication.status(now=server.now).drops == 0  # type: ignore[union-attr]
    assert server.standby.holds_every_durable_push(now=server.now)


def test_another_process_at_the_address_of_a_standby_waits_for_its_lease_and_loses_no_durable_push() -> None:
    """The first one may be promoted until then: what is durable has to be there."""
    server = WithStandby.following()
    server.is_cut = True
    assert server.refusal("the second", follow_of("second")).code == "followed"
    server.push("a", 1)
    server.save_and_complete()
    assert server.heartbeat("a").durable == 0, "the first standby lacks it"
    server.silence(1.5)
    server.ask_standby(server.witness("a", oldest=1))
    assert server.standby.server is not None, "it has all that was durable"


# -- weights that are ruined at this moment ---------------------------------------------------------------------------


def test_ruined_weights_are_nobodys_state() -> None:
    server = WithStandby.seeded()
    server.run.weights.flat[0] = float("nan")
    assert server.refusal("x", follow_of("x")).code == "not_finite"
    server.run.weights.flat[0] = 0.0
    effects = server.say("x", follow_of("x"))
    assert any(isinstance(one, Send) and isinstance(one.message, messages.State) for one in effects)


def test_a_standby_that_is_sent_ruined_weights_asks_again_and_lives() -> None:
    server = WithStandby.seeded()
    assert isinstance(server, WithStandby)
    state, buffers = state_of(server.run, request=1, now=server.now)
    at, spec = state.record_bytes, state.vectors[0]
    whole = bytearray(b"".join(bytes(buffer) for buffer in buffers))
    whole[at : at + 4] = np.float32("nan").tobytes()
    ruined = msgspec.structs.replace(state, check="")
    effects = server.standby.receive_from_primary(ruined, [bytes(whole)], now=server.now)
    assert "it is requested again" in only(LogLine, effects).text, spec
    assert server.standby.run is None
    (follow,) = server.standby.tick(now=server.now)
    assert isinstance(follow, SendToServer)
    assert isinstance(follow.message, messages.Follow)
    assert follow.message.request > 1, "under another number: the first state was sent"


# -- a folder from a backup -------------------------------------------------------------------------------------------


def test_a_server_of_an_older_copy_of_its_folder_does_not_say_that_another_has_taken_over() -> None:
    server = Transcript.seeded()
    seen = server.run.lineage.resumed(draw=5).resumed(draw=7)
    server.say("a", server.hello_of("a", **later(seen.epoch)))
    assert server.machine.phase is Phase.FENCED
    assert "serves this run now" not in server.machine.ending.fenced
    assert "an earlier life of the run" in server.machine.ending.fenced
    assert "--take-back" in server.machine.ending.fenced


# -- a server without weights -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_no_fence_ends_a_server_that_a_worker_has_joined(claim: dict[str, object]) -> None:
    """Nor makes it the follower of whoever sends that."""
    server = Transcript()
    server.hello("a")
    server.say("a stranger", a_fence(**claim, address="evil.example:5555"))
    assert server.machine.phase is Phase.EMPTY
    assert server.machine.ending.gives_way_to == ""
    assert server.seed("a").accepted
