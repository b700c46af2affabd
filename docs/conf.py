"""
The documentation site: which pages it has, how it looks, and which of our extensions build it.

The source folder is the repository, so that every page stays where a repository viewer shows it, and a relative link
means the same in both. `make docs` builds the site into build/docs; a warning is an error.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

project = "ps-rl"
author = "The ps-rl authors"
copyright = "The ps-rl authors, MIT licence"

extensions = [
    "myst_parser",
    "docs.extension.notebooks",
    "docs.extension.source_pages",
    "docs.extension.accessibility",
]
root_doc = "docs/index"
include_patterns = [
    "*.md", "docs/**.md", "docs/**.ipynb", "common/PROTOCOL.md", "docker/README.md", "deploy/**README.md",
    "benchmarks/**.md", "examples/**.md",
]  # fmt: skip
# Folders that are not looked into at all: large ones, and ones with pages of other projects.
exclude_patterns = [".*", "build", "runs", "tests", "ps_[a-z]*", "rl_[a-z]*", "common/[pr][sl]_*", "*.egg-info"]

myst_heading_anchors = 4  # as a repository viewer gives them to headings
suppress_warnings = ["myst.header"]
highlight_language = "text"
nitpicky = True
templates_path = ["templates"]

html_theme = "furo"
html_title = "ps-rl"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_permalinks_icon = "#"
html_theme_options = {"footer_icons": []}
linkcheck_timeout = 20
linkcheck_anchors = False  # pages that draw themselves have no anchors to find
