"""Pages in a real browser."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page

from tests.integration.processes import Program, wait_for


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages; a page whose console has errors fails its test."""
    errors: list[str] = []
    with pages_of(browser, errors) as opened:
        yield opened
    assert errors == []


@contextmanager
def pages_of(browser: Browser, errors: list[str]) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def opened(address: str, *, width: int = 1440, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if is_error(message) else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.context.close()


def is_error(message: ConsoleMessage) -> bool:
    """A refused adjustment is none: the browser names the status, and the page shows the sentence."""
    return message.type == "error" and "409 (Conflict)" not in message.text


def printed_address(program: Program) -> str:
    """The address of the page that the program serves, with its token where a file has the whole address."""

    pattern = re.compile(r"^page: (http\S+)(?: \(its token is in (.+/page)\))?", re.MULTILINE)
    found = wait_for(lambda: pattern.search(program.output), program=program)
    return Path(found[2]).read_text() if found[2] else str(found[1])


def until(page: Page, condition: str, seconds: float = 60.0) -> None:
    """Wait for a JavaScript condition. (Playwright's own way to wait is kept out by the page's policy.)"""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}\n{page.locator('body').inner_text()}"
        page.wait_for_timeout(50)
