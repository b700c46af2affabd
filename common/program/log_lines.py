"""
How a line of a program's log looks: date, level, and the writer's name.

Logs of many hosts are read side by side, weeks later, so each line is complete without its file.
"""

import logging

DATE = "%Y-%m-%d %H:%M:%S"


def log_as(writer: str) -> None:
    """Log everything of level INFO and above to standard error, as lines of `writer`."""
    handler = logging.StreamHandler()
    handler.setFormatter(line_format(writer))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def line_format(writer: str) -> logging.Formatter:
    """2026-01-31 23:59:59 WARNING worker-3: MESSAGE"""
    return logging.Formatter(f"%(asctime)s %(levelname)s {writer.replace('%', '%%')}: %(message)s", DATE)
