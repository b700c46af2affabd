"""Everything that the pages for people point at is there: files, and headings of pages."""

import re
from pathlib import Path

from docs.extension import generated_pages
from tests.rows import row

ROOT = Path(__file__).parent.parent
FOLDERS = "common|ps_[a-z]+|rl_[a-z]+|zoo|tests|benchmarks|docs|docker|deploy|examples"
MADE_LATER = {"benchmarks/latest.json", "docker/.env"}
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


def test_the_first_page_counts_what_there_is() -> None:
    page = " ".join((ROOT / "README.md").read_text().split())
    presets = len(list((ROOT / "common/ps_common/presets").glob("*.toml")))
    policies = len(list((ROOT / "zoo").glob("*/")))
    assert f"another of {presets} [presets]" in page
    assert f"[zoo/](zoo) has {['no', 'one', 'two', 'three', 'four', 'five', 'six'][policies]} trained policies" in page


def test_the_reference_is_what_the_code_says() -> None:
    for page in sorted(generated_pages.FOLDER.glob("*.md")):
        with row(page):
            assert page.read_text() == generated_pages.page_of(page.read_text()), "make reference writes it again"


WHO = ["stranger", "worker's key", "another key", "admin's key", "same user", "hostile server", "visitor"]
WHAT = [
    "end a run", "spoil it", "slow it", "read it", "hide warnings", "fill a disk", "fill memory", "take all descriptors"
]  # fmt: skip


def test_who_can_do_what_is_said_of_everybody_and_each_no_is_tried_by_a_test() -> None:
    section = (ROOT / "docs/GUARANTEES.md").read_text().partition("## Who can do what")[2].partition("\n## ")[0]
    answers: dict[tuple[str, str], str] = {}
    head: list[str] = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if cells[:1] == ["who"]:
            head = cells
        elif cells and not cells[0].startswith("-"):
            answers |= {(cells[0], what): cell for what, cell in zip(head[1:], cells[1:], strict=True)}
    assert sorted(answers) == sorted((who, what) for who in WHO for what in WHAT)
    there = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for place, answer in answers.items():
        with row(place):
            assert re.match("no: `test_|yes, because |bound: ", answer)
    for name in re.findall(r"`(test_\w+)`", section):
        with row(name):
            assert f"def {name}(" in there
