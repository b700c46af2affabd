import logging

import pytest

from ps_server.machine.effects import Note
from ps_server.shell.noted_lines import AT_ONCE, PER_SECOND, NotedLines


def test_a_peer_cannot_fill_the_disk_with_lines_nor_hide_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ps-server")
    lines = NotedLines()
    for _ in range(10_000):
        lines.add(Note("a is back"), now=50.0)
    lines.add(Note("the disk is full", warning=True), now=50.0)
    assert len(caplog.messages) == AT_ONCE + 1
    assert caplog.messages[-1] == "the disk is full"
    caplog.clear()
    for _ in range(100):
        lines.add(Note("b joined: 100 %s"), now=51.0)
    assert caplog.messages[0] == f"({10_000 - AT_ONCE} lines like the following were left out)"
    assert caplog.messages[1:] == ["b joined: 100 %s"] * int(PER_SECOND)
