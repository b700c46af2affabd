"""
The parts of reference pages that are made from the code when the site is built.

A page says where, with a comment in a line of its own: `<!-- from the code: settings -->`. The generated text is
Markdown; the page reads well without it in a repository viewer.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from sphinx.application import Sphinx

from docs.extension import programs, python_names, records, settings_tables

GENERATORS: Mapping[str, Callable[[], str]] = {
    "settings": settings_tables.settings,
    "adjustable settings": settings_tables.adjustable,
    "flags": programs.flags,
    "messages": records.messages,
    "rows": records.rows,
    "metrics": records.metrics,
    "python names": python_names.names,
}
MARK = re.compile(r"^<!-- from the code: ([a-z ]+) -->$", re.MULTILINE)


def fill_in(app: Sphinx, name: str, content: list[str]) -> None:
    """Replace each mark of a page. Raises KeyError for a name without a generator."""
    content[0] = MARK.sub(lambda found: GENERATORS[found[1]](), content[0])


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", fill_in)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
