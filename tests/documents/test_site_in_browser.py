"""The documentation site in a real browser: nothing comes from elsewhere, it fits a phone, everybody can read it."""

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.documents.test_site import build

PAGES = ["index", "tutorial/1-first-agent", "troubleshooting", "how-it-works", "reference/settings"]
SERIOUS = {"serious", "critical"}

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1440, "light"), (1440, "dark")])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_nothing_from_elsewhere_and_fits_and_can_be_read(
    browser: Browser, site: Path, name: str, width: int, scheme: str
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    asked: list[str] = []
    failed: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.goto((site / f"docs/{name}.html").as_uri())
    page.wait_for_load_state("networkidle")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert failed == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    found = [violation for violation in Axe().run(page).response["violations"] if violation["impact"] in SERIOUS]
    assert [(one["id"], [node["html"] for node in one["nodes"][:3]]) for one in found] == []
    page.close()
