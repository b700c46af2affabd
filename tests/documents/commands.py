"""
The commands of the pages for people: those of fenced blocks, one by one, and those in the running text.

A block is a page's ```sh, ```toml, ```yaml, ```python or ```text. The site's tables of contents are ```{toctree}, which
the test of the site reads. Other fences have no rule here, and fail a test.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("docs", "docker", "deploy", "examples", "benchmarks", "common")
PATTERNS = ("*.md", *(f"{folder}/**/*.md" for folder in FOLDERS))
LOOP = re.compile(r"for (\w+) in ([^;]*); do (.*); done")
FENCE = re.compile(r"^```(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
KINDS = {"sh", "toml", "yaml", "python", "text", "{toctree}"}
ELLIPSIS = "…"


@dataclass(frozen=True)
class Block:
    """One fenced block: "docs/OPERATIONS.md:8"."""

    page: str
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    found = {path.relative_to(ROOT).as_posix() for pattern in PATTERNS for path in ROOT.glob(pattern)}
    return sorted(found)


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text()
    return [
        Block(page, text[: found.start()].count("\n") + 1, found[1].strip(), found[2]) for found in FENCE.finditer(text)
    ]


def all_blocks(*kinds: str) -> list[Block]:
    return [block for page in pages() for block in blocks_of(page) if not kinds or block.kind in kinds]


def lines_of(block: Block) -> list[str]:
    """The lines that a shell reads: continued ones as one, without empty ones and comments."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [one for line in lines if line.strip() and not line.lstrip().startswith("#") for one in _without_loop(line)]


def _without_loop(line: str) -> list[str]:
    """`for NAME in …; do …; done` as one line for each value."""
    if (loop := LOOP.fullmatch(line.strip())) is None:
        return [line]
    name, values, body = loop.groups()
    return [body.replace(f"${name}", value) for value in values.split()]


def commands_in(line: str) -> list[list[str]]:
    """The words of each simple command of a line, without settings of variables before it."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, "#"
    commands: list[list[str]] = [[]]
    for word in lexer:
        if word in ("&&", "||", ";", "|", "&"):
            commands.append([])
        elif commands[-1] or not re.fullmatch(r"[A-Za-z_]+=.*", word):
            commands[-1].append(word)
    return [command for command in commands if command]


def mentions_in(page: str) -> list[str]:
    """The code in the running text, each as one line."""
    prose = FENCE.sub("", (ROOT / page).read_text())
    return [" ".join(found.split()) for found in INLINE.findall(prose)]
