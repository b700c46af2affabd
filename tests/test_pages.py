"""Everything that the pages for people point at is there: files, and headings of pages."""

import re
from pathlib import Path

from tests.rows import row

ROOT = Path(__file__).parent.parent
FOLDERS = "common|ps_[a-z]+|rl_[a-z]+|zoo|tests|benchmarks|docs|docker|deploy|examples"
MADE_LATER = {"benchmarks/latest.json", "docker/.env", "deploy/swarm/keys"}
PATTERNS = (
    "*.md", "docs/**/*.md", "docker/*.md", "deploy/**/*.md", "benchmarks/**/*.md", "common/*.md", "examples/**/*.md"
)  # fmt: skip
PAGES = sorted(path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern))


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_path_in_a_page_exists() -> None:
    for page in PAGES:
        with row(page):
            paths = re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", (ROOT / page).read_text())
            assert [path for path in paths if path not in MADE_LATER and not (ROOT / path).exists()] == []


def test_every_link_in_a_page_leads_somewhere() -> None:
    for page in PAGES:
        with row(page):
            here = ROOT / page
            for target in re.findall(r"\]\(([^)\s]+)\)", here.read_text()):
                if "://" in target:
                    continue
                path, _, anchor = target.partition("#")
                there = here.parent / path if path else here
                assert there.exists(), target
                assert not anchor or anchor in anchors_of(there), target
