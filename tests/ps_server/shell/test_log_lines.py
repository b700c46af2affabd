import logging

import pytest

from ps_server.shell.log_lines import AT_ONCE, MOST_CAUSES, PER_SECOND, LogLines
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
    assert caplog.messages[0] == f"({10_000 - AT_ONCE} more lines of this level were left out)"
    assert caplog.messages[1:] == ["b joined: 100 %s"] * int(PER_SECOND)


def test_a_loud_peer_hides_no_warning_of_another_nor_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    """Of 10,000 workers that stall and go on none is heard much; a failed checkpoint is, each time."""
    lines = LogLines()
    for peer in ({"worker_id": "loud"}, {"peer": "standby"}):
        caplog.clear()
        for _ in range(10_000):
            lines.add(LogLine("has made no step", warning=True, **peer), now=50.0)
        assert len(caplog.messages) == AT_ONCE / 10
        lines.add(LogLine("quiet is gone", warning=True, worker_id="quiet"), now=50.0)
        assert caplog.messages[-1] == "quiet is gone"
    for number in range(10_000):
        lines.add(LogLine("joined and stalled", warning=True, worker_id=f"worker {number}"), now=50.0)
    assert len(lines._shares) == MOST_CAUSES
    caplog.clear()
    for number in range(3 * AT_ONCE):
        lines.add(LogLine(f"checkpoint failed: {number}", warning=True), now=50.0)
    assert [text for text in caplog.messages if "left out" not in text] == [
        f"checkpoint failed: {number}" for number in range(3 * AT_ONCE)
    ]
