"""A drained run at the server: who is admitted, what workers are told, and what a resume changes."""

from ps_common.protocol import messages
from ps_common.protocol.messages import RunReply, Welcome
from ps_server.state.effects import SaveCheckpoint
from tests.ps_server.machine.test_adjusting import adjust
from tests.ps_server.transcripts import EPOCH, Transcript, only, restored_run


def is_told_to_leave(server: Transcript, peer: str) -> bool:
    return server.answer(RunReply, peer, messages.RunRequest(request=server.next_request())).drained


def test_workers_of_a_drained_run_are_told_to_leave_and_their_pushes_are_applied(server: Transcript) -> None:
    assert not is_told_to_leave(server, "a")
    adjust(server, drained=True)
    assert is_told_to_leave(server, "a")
    server.push("a", 1, [2, 2, 2])
    assert server.weights() == [-2, -2, -2]
    adjust(server, drained=False)
    assert not is_told_to_leave(server, "a")


def test_a_drained_run_admits_the_workers_that_it_knows_and_no_others(server: Transcript) -> None:
    adjust(server, drained=True)
    refused = server.refusal("c", server.hello_of("c"))
    assert (refused.code, "ps-ctl resume" in refused.reason) == ("drained", True)
    welcome = server.answer(Welcome, "a", server.hello_of("a"))
    assert welcome.drained, "it may have pushes to send again, and then leaves"
    adjust(server, drained=False)
    assert not server.answer(Welcome, "c", server.hello_of("c")).drained


def test_minutes_of_a_drained_run_do_not_count_and_a_checkpoint_keeps_it_drained(server: Transcript) -> None:
    adjust(server, drained=True)
    before = server.machine.status(now=server.now).minutes
    checkpoint = only(SaveCheckpoint, server.after(600.0))
    assert server.machine.status(now=server.now).minutes == before
    again = Transcript(restored_run(checkpoint.vectors, checkpoint.record, epoch=EPOCH + 1), epoch=EPOCH + 1)
    assert again.machine.status(now=again.now).drained
    assert again.refusal("c", again.hello_of("c")).code == "drained"
