"""
Which names are free after a restart: none that a living process may have, and each of a process that left in order.

A restart is what a server knows of its run from its newest checkpoint alone.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol.messages import Welcome
from ps_common.protocol.record import record_from_json, record_to_json
from ps_server.state.effects import SaveCheckpoint
from tests.ps_server.transcripts import LEASE_SECONDS, Transcript, only, restored_run

NAMES = ("early", "late", "never")


def restarted(server: Transcript, checkpoint: SaveCheckpoint) -> Transcript:
    epoch = server.machine.epoch + 1
    record = record_from_json(record_to_json(checkpoint.record))
    return Transcript(restored_run(checkpoint.vectors, record, epoch=epoch), epoch=epoch, now=server.now)


def last_of(server: Transcript) -> SaveCheckpoint:
    """The checkpoint of a server that ends in order."""
    assert server.machine.lacks_last_checkpoint
    saved = only(SaveCheckpoint, server.machine.save(now=server.now, is_last=True))
    server.machine.checkpoint_saved("last.safetensors")
    assert not server.machine.lacks_last_checkpoint
    return saved


def may_take(server: Transcript, name: str) -> bool:
    """Whether another process gets this name now."""
    reply = server.ask(f"another {name}", server.hello_of(name, process=2)).message
    return isinstance(reply, Welcome)


@pytest.mark.parametrize("name", NAMES)
def test_for_one_lease_a_killed_server_holds_each_name_whenever_its_process_joined(name: str) -> None:
    server = Transcript.seeded(workers=("early",))
    checkpoint = server.save_and_complete()
    server.hello("late")
    again = restarted(server, checkpoint)
    assert not may_take(again, name)
    again.after(LEASE_SECONDS - 0.5)
    assert not may_take(again, name)
    again.after(0.6)
    assert may_take(again, name)


@pytest.mark.parametrize("name", ["early", "late"])
def test_the_process_itself_comes_back_at_once_and_keeps_its_pushes(name: str) -> None:
    server = Transcript.seeded(workers=("early",))
    checkpoint = server.save_and_complete()
    server.hello("late")
    again = restarted(server, checkpoint)
    assert not may_take(again, name)
    assert again.hello(name, incarnation=1).incarnation == 1
    assert again.push(name, 1).verdict == "applied"


@given(st.lists(st.tuples(st.sampled_from(("a", "b", "c")), st.sampled_from(("joins", "leaves"))), max_size=12))
def test_a_run_that_ended_in_order_is_resumed_without_a_refusal_but_for_those_who_stayed(
    events: list[tuple[str, str]],
) -> None:
    server, present = Transcript.seeded(workers=("first",)), {"first"}
    server.goodbye("first")
    present.discard("first")
    for name, what in events:
        if what == "joins" and name not in present:
            server.hello(name, process=3)
            present.add(name)
        elif what == "leaves" and name in present:
            server.goodbye(name)
            present.discard(name)
    again = restarted(server, last_of(server))
    assert {name for name in ("first", "a", "b", "c", "new") if not may_take(again, name)} == present


def test_a_life_that_was_killed_before_it_saved_anything_may_have_admitted_others() -> None:
    server = Transcript.seeded(workers=("early",))
    server.goodbye("early")
    last = last_of(server)
    killed = restarted(server, last)
    assert may_take(killed, "new")
    after_it = restarted(server, last)
    after_it.run.may_lack_workers = True  # as starting.py finds out by the epochs (test_starting.py)
    assert not may_take(after_it, "new")
