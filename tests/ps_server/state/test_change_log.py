"""The log of a run against a list of everything that was appended, and what stays of it where nobody reads."""

from hypothesis import given
from hypothesis import strategies as st

from ps_common.protocol.messages import HandedOver
from ps_server.state.change_log import ChangeLog

HISTORIES = st.lists(st.sampled_from(["append", "skip", "read", "look away"]))


@given(HISTORIES)
def test_a_reader_gets_each_change_since_it_began_once_and_nobody_else_costs_memory(history: list[str]) -> None:
    log = ChangeLog()
    changes: list[int] = []  # positions after each append since the last look
    position, has_reader = log.position, False
    for event in history:
        if event in ("append", "skip"):
            position += 1
            if event == "append":
                log.append(HandedOver())
                changes.append(position)
            else:
                log.skip()
        else:
            taken = log.take(is_read=event == "read")
            assert [entry.position for entry in taken] == (changes if has_reader else [])
            has_reader, changes = event == "read", []
        assert log.position == position
