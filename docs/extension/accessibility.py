"""
Needs of readers by keyboard and by ear that the theme leaves open: in the HTML of each page, when it is written.

Captions of the navigation are headings without a level; code and tables scroll, and no key reaches them.
"""

from typing import Any

from sphinx.application import Sphinx

TREE, BODY = "furo_navigation_tree", "body"
CAPTION, TABLE = 'role="heading"', '<div class="table-wrapper'


def complete(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Give captions their level; let the keyboard reach what scrolls."""
    if TREE in context:
        context[TREE] = context[TREE].replace(CAPTION, f'{CAPTION} aria-level="2"')
    if BODY in context:
        body = context[BODY].replace("<pre>", '<pre tabindex="0">')
        context[BODY] = body.replace(TABLE, TABLE.replace("<div", '<div tabindex="0"'))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("html-page-context", complete, priority=900)  # after the theme has made the tree
    return {"parallel_read_safe": True, "parallel_write_safe": True}
