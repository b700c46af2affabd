"""Any text of a run's settings on a model card: YAML reads it back, and Markdown makes no HTML and no link of it."""

import re
from html.parser import HTMLParser

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from rl_eval.export import as_code, in_markdown, in_yaml
from tests.rows import row

ROUGH = [
    *("cartpole-a3c", "ALE/Pong-v5", "a: b", "- x", "null", "no", "1.5", "~", "", "]", "x #y", "'", '"', "\\", "---"),
    *(
        "a\nb: c",
        "a\r\nb",
        "\n\n<b>",
        "    x",
        "\t",
        "é \x07\x7f\x85\u2028",
        "🙂",
        "{{x}}",
        "# h",
        "*a*",
        "__a__",
        "|",
        "a|b",
    ),
    *("<script>alert(1)</script>", "](javascript:alert(1))", "[x](javascript:alert(1))", "![](http://a/b.png)"),
    *("|", "a|b", "`", "``a`", "&lt;", "http://a.example", "<http://a.example>", "[a]: http://a.example"),
]
MARKDOWN = MarkdownIt("commonmark", {"html": True, "linkify": False}).enable("table")


class Seen(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, _: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def check(text: str) -> None:
    front = f"tags: [ps-rl, {in_yaml(text)}]\nmodel-index:\n- name: {in_yaml(text)}\n"
    assert yaml.safe_load(front) == {"tags": ["ps-rl", text], "model-index": [{"name": text}]}
    page = Seen(MARKDOWN.render(f"# Of {in_markdown(text)}.\n\nThe preset {as_code(text)} (a3c)\n"))
    assert page.tags == ["h1", "p", "code"]
    assert one_line(page.text).split() == one_line(f"Of {text}. The preset {text} (a3c)").split()
    table = Seen(MARKDOWN.render(f"| a | |\n|---|---|\n| name | {in_markdown(text)} |\n"))
    assert table.tags == ["table", "thead", "tr", "th", "th", "tbody", "tr", "td", "td"]


def test_rough_texts_are_read_back_and_shown() -> None:
    for text in ROUGH:
        with row(text):
            check(text)


@pytest.mark.nightly
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_any_text_is_read_back_and_shown(text: str) -> None:
    check(text)
