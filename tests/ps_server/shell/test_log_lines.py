import logging

import pytest

from ps_server.shell.log_lines import AT_ONCE, PER_SECOND, LogLines
from ps_server.state.effects import LogLine


def test_a_peer_cannot_fill_the_disk_with_lines_nor_hide_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="ps-server")
    lines = LogLines()
    for _ in range(10_000):
        lines.add(LogLine("a is back"), now=50.0)
    lines.add(LogLine("the disk is full", warning=True), now=50.0)
    assert len(caplog.messages) == AT_ONCE + 1
    assert caplog.messages[-1] == "the disk is full"
    caplog.clear()
    for _ in range(100):
        lines.add(LogLine("b joined: 100 %s"), now=51.0)
    assert caplog.messages[0] == f"({10_000 - AT_ONCE} lines like the following were left out)"
    assert caplog.messages[1:] == ["b joined: 100 %s"] * int(PER_SECOND)
