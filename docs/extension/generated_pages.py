"""
The parts of docs/reference that are made from the code.

A page has them between two comments, each a line of its own: `<!-- from the code: settings -->` and `<!-- end -->`.
`python -m docs.extension.generated_pages` (`make reference`) writes them again; a test compares.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.extension import programs, python_names, records, settings_tables

FOLDER = Path(__file__).parent.parent / "reference"
GENERATORS: Mapping[str, Callable[[], str]] = {
    "settings": settings_tables.settings,
    "adjustable settings": settings_tables.adjustable,
    "flags": programs.flags,
    "rows": records.rows,
    "metrics": records.metrics,
    "python names": python_names.names,
}
PART = re.compile(r"^<!-- from the code: ([a-z ]+) -->\n.*?^<!-- end -->$", re.MULTILINE | re.DOTALL)


def page_of(text: str) -> str:
    """A page with its parts made anew. Raises KeyError for a name without a generator."""
    return PART.sub(lambda found: f"<!-- from the code: {found[1]} -->\n\n{_part(found[1])}\n\n<!-- end -->", text)


def _part(name: str) -> str:
    return re.sub(r"\n{3,}", "\n\n", GENERATORS[name]()).strip()


if __name__ == "__main__":
    for page in sorted(FOLDER.glob("*.md")):
        page.write_text(page_of(page.read_text()))
