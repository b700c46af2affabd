"""
How a line of a program's log looks: date, level, and who writes.

Logs of many hosts are read side by side, a week later: every line says when and by whom without the file around it.
"""

import logging

DATE = "%Y-%m-%d %H:%M:%S"


def log_as(who: str) -> None:
    """From now on everything of level INFO and above goes to standard error, as lines of `who`."""
    handler = logging.StreamHandler()
    handler.setFormatter(line_format(who))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def line_format(who: str) -> logging.Formatter:
    """2026-01-31 23:59:59 WARNING worker-3: what there is to say"""
    return logging.Formatter(f"%(asctime)s %(levelname)s {who.replace('%', '%%')}: %(message)s", DATE)
