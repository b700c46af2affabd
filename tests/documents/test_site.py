"""
The documentation site, as `make docs` builds it: no warning, no dead link, nothing loaded from elsewhere.

Addresses of other hosts cannot be reached from every machine that runs the tests: here their form is checked, and
`make docs-links` asks each of them.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from docs.extension.pictures import FOLDER, PICTURES
from tests.documents.commands import ROOT, pages
from tests.rows import row

PLACEHOLDER = re.compile(r"HOST|EXAMPLE|TODO|…", re.IGNORECASE)
LOADED = {"img": "src", "script": "src", "source": "src", "iframe": "src", "video": "src"}


class Page(HTMLParser):
    """The links, the loaded files and the anchors of one HTML file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.links, self.loads, self.anchors = path, set[str](), set[str](), set[str]()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        if tag == "link" and values.get("rel") not in ("canonical", "author"):
            self.loads.add(values["href"])
        if tag in LOADED and LOADED[tag] in values:
            self.loads.add(values[LOADED[tag]])


@cache
def page_at(path: Path) -> Page:
    return Page(path)


def build(folder: Path) -> Path:
    """Build the site into this folder, as `make docs` does. Raises AssertionError with all warnings."""
    command = [sys.executable, "-m", "sphinx", "-c", "docs", "-b", "html", "-q", "-W", "--keep-going", ".", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def faults_of(page: Page) -> Iterator[str]:
    """The faults of a page's links."""
    for link in sorted(page.links | page.loads):
        parts = urlsplit(link)
        if parts.scheme == "data":
            continue
        if parts.scheme:
            is_well_formed = parts.scheme == "https" and "." in parts.netloc and not PLACEHOLDER.search(link)
            is_well_formed |= parts.hostname == "localhost"  # of a program that the page has started
            if link in page.loads:
                yield f"{page.path}: loads {link} from elsewhere"
            elif not is_well_formed:
                yield f"{page.path}: {link} is no address of a page"
            continue
        there = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        if not there.is_file():
            yield f"{page.path}: nothing at {link}"
        elif parts.fragment and there.suffix == ".html" and unquote(parts.fragment) not in page_at(there).anchors:
            yield f"{page.path}: no such heading: {link}"


@pytest.mark.nightly  # test_pages.py follows the links of every page
@pytest.mark.timeout(300)  # for a machine that does much else; it takes some seconds
def test_the_site_has_no_warning_and_no_dead_link_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    site = build(tmp_path / "site")
    built = sorted(site.rglob("*.html"))
    missing = [page for page in pages() if not (site / page).with_suffix(".html").exists()]
    assert missing == [], "no page of the site: docs/index.md names it in no table of contents"
    assert [fault for path in built for fault in faults_of(page_at(path))] == []


def test_a_picture_is_what_its_drawing_makes() -> None:
    for name in PICTURES:
        with row(name):
            drawn = (FOLDER / f"{name}.svg").read_text()
            assert drawn == PICTURES[name](), "python -m docs.extension.pictures draws it again"


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.html").write_text('<h1 id="here">There</h1>')
    links = ["there.html#here", "there.html#gone", "gone.html", "https://", "http://a.org/", "https://a.org/HOST"]
    text = "".join(f'<a href="{link}">x</a>' for link in links) + '<script src="https://a.org/x.js"></script>'
    (tmp_path / "page.html").write_text(text)
    assert len(list(faults_of(Page(tmp_path / "page.html")))) == len(links)
