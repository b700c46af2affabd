"""Each line of a log has date, level and writer."""

import logging
import re

from ps_common.program.output import line_format
from tests.rows import row


def test_a_line_has_date_level_and_writer() -> None:
    for who in ["ps-server", "worker-3", "host-1234", "100%s", "%(name)s"]:
        with row(who):
            record = logging.LogRecord("x", logging.WARNING, __file__, 1, "%d pushes are gone: 5%%", (3,), None)
            line = line_format(who).format(record)
            assert re.fullmatch(
                rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d WARNING {re.escape(who)}: 3 pushes are gone: 5%", line
            )


def test_a_traceback_follows_its_line() -> None:
    try:
        raise ValueError("boom")
    except ValueError as error:
        record = logging.LogRecord(
            "x", logging.ERROR, __file__, 1, "failed", (), (ValueError, error, error.__traceback__)
        )
    first, *rest = line_format("w").format(record).splitlines()
    assert first.endswith("ERROR w: failed")
    assert rest[-1] == "ValueError: boom"
