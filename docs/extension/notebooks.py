"""
Notebooks as pages: their text as it is, their code in fences, and what their cells showed when they were run last.

A curve is shown as a picture, everything else as text. Nothing is run when the site is built.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

COLOURS = re.compile(r"\x1b\[[0-9;]*m")  # of a terminal


def as_page(app: Sphinx, name: str, content: list[str]) -> None:
    """Replace the source of a page that is a notebook by Markdown."""
    if Path(app.env.doc2path(name)).suffix == ".ipynb":
        content[0] = "\n\n".join(part for cell in json.loads(content[0])["cells"] for part in _parts(cell))


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```python\n{text}\n```"
    for output in cell["outputs"]:
        data = {kind: "".join(lines) for kind, lines in output.get("data", {}).items()}
        if "<svg" in (shown := data.get("text/html", "")):
            yield f"```{{raw}} html\n{shown}\n```"
        elif plain := COLOURS.sub("", data.get("text/plain", "".join(output.get("text", "")))).strip():
            yield f"```text\n{plain}\n```"


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_source_suffix(".ipynb", "markdown")
    app.connect("source-read", as_page, priority=400)  # before anything looks for marks
    return {"parallel_read_safe": True, "parallel_write_safe": True}
