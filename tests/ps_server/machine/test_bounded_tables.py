"""The machine's tables stay bounded, however many workers and standbys come and go."""

import math
from collections import deque
from typing import Any

import msgspec
import pytest

from ps_common.protocol import messages
from ps_server.machine import allowances, membership
from ps_server.state import ledger
from tests.ps_server.transcripts import Transcript, encoded

NAMES = 40  # that the workers go by
TABLES = (dict, list, set, frozenset, deque, tuple)


def things_in(root: Any) -> int:
    """How many elements all tables hold that can be reached from here, those of the program itself left out."""
    count, seen, waiting = 0, set(), [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, type) or callable(one):
            continue
        seen.add(id(one))
        if isinstance(one, TABLES):
            count += len(one)
            waiting += [*one, *one.values()] if isinstance(one, dict) else one
        elif isinstance(one, msgspec.Struct):
            waiting += [getattr(one, name) for name in one.__struct_fields__]
        elif type(one).__module__.startswith(("ps_server", "ps_common")):
            waiting += vars(one).values()
    return count


def a_life(server: Transcript, number: int) -> None:
    """
    A worker joins, pushes, reports, asks, and leaves in one way or another; a stranger talks nonsense, and a standby
    follows for a while.
    """
    peer = f"connection-{number}"
    server.say(peer, server.hello_of(f"worker-{number % NAMES}", process=number))
    for sequence in (1, 2, 5, 6):  # 3 and 4 were lost
        server.say(peer, server.push_of(sequence), encoded([0, 0, 0]))
    for sequence in range(7, 7 + number % 20):
        server.say(peer, server.push_of(sequence), encoded([math.nan, 0, 0]))
    server.say(peer, messages.Report(request=1, sequence=1, meters={f"meter {n}": 1.0 for n in range(number % 9)}))
    for request in range(10):
        server.say(peer, messages.CheckpointRequest(request=request))
    server.machine.unreadable(f"stranger-{number}".encode(), "no message", now=server.now)
    if number % 20 == 0:  # as often as its lease and its pause allow, with all that changes meanwhile in its backlog
        server.say("standby", messages.Follow(request=number, address="s:1", process=f"process {number}"))
    if number % 3 == 0:
        server.say(peer, messages.Goodbye(request=9))
    if number % 10 == 0 and server.machine.checkpoints.is_writing:
        server.machine.checkpoint_saved("here.safetensors")
    server.after(0.5)


@pytest.mark.parametrize("rule", ["async", "ssp", "sync"])
def test_after_many_lives_the_machine_holds_no_more_than_after_some(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setattr(allowances, "MOST_ACCOUNTS", 50)
    monkeypatch.setattr(membership, "MAX_MEMBERS", 20)
    server = Transcript.seeded(workers=("first",), consistency={"rule": rule})
    for sequence in range(1, 301):
        server.push("first", sequence)  # the means of the newest are full
    held = []
    for number in range(1, 501):
        a_life(server, number)
        if number % 25 == 0:
            held.append(things_in(server.machine))
    assert held[0] > 500, "the count is not that of the machine"
    assert max(held[10:]) <= 1.05 * max(held[:10]), held


@pytest.mark.parametrize("rule", ["async", "ssp", "sync"])
def test_names_that_pull_and_leave_are_forgotten(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Where they were silent for long."""
    monkeypatch.setattr(membership, "MAX_MEMBERS", 20)
    monkeypatch.setattr(membership, "SILENT_SECONDS", 5.0)
    monkeypatch.setattr(ledger, "MOST_KEPT", 20)
    server = Transcript.seeded(workers=("first",), consistency={"rule": rule})
    held = []
    for number in range(400):
        server.say(f"connection-{number}", server.hello_of(f"worker-{number}"))
        server.say(f"connection-{number}", messages.Pull(request=2))
        server.say(f"connection-{number}", messages.Goodbye(request=3))
        server.after(0.5)
        held.append(things_in(server.machine))
    assert max(held[300:]) <= 1.05 * max(held[:100]), (max(held[:100]), max(held[300:]))
