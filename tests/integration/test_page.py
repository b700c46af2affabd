"""The page in a real browser, beside a real run of CartPole."""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tests.integration.processes import Program, Programs, status_of, wait_for

CHROMIUM = shutil.which("chromium")
NO_END = ("--max-steps", "1000000000", "--until-return", "None")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here: apt-get install chromium"),
    pytest.mark.timeout(300),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens pages; a page whose console has errors fails its test."""
    errors: list[str] = []
    with _pages(browser, errors) as opened:
        yield opened
    assert errors == []


@contextmanager
def _pages(browser: Browser, errors: list[str]) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def opened(address: str, *, width: int = 1440, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.context.close()


def start_page(programs: Programs, *flags: object) -> str:
    """The address of a page, with its token."""
    web = programs.start("ps-web", *map(str, flags), "--port", "0")
    return str(wait_for(lambda: printed_address(web), program=web))


def printed_address(web: Program) -> str:
    return next((line[6:] for line in web.output.splitlines() if line.startswith("page: ")), "")


def start_run(programs: Programs, folder: Path, *, workers: int = 2) -> tuple[Program, str]:
    server, endpoint = programs.start_server(
        "--preset", "cartpole-a3c", "--lease-seconds", "2", *NO_END, run_dir=folder
    )
    for number in range(workers):
        programs.start("rl-worker", "--server", endpoint, "--name", f"worker-{number}")
    return server, endpoint


def steps_drawn(page: Page) -> int:
    return int(page.evaluate("(runs.get(0)?.points.global_steps ?? []).filter((steps) => steps > 0).length"))


def tile(page: Page, name: str) -> str:
    return str(page.locator("#tiles div", has=page.locator(f"dt:text-is('{name}')")).locator("dd").inner_text())


def until(page: Page, condition: str, seconds: float = 60.0) -> None:
    """Wait for a JavaScript condition. (Playwright's own way to wait is kept out by the page's policy.)"""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}\n{page.locator('body').inner_text()}"
        page.wait_for_timeout(50)


def test_a_run_is_watched_and_steered_and_a_lost_worker_is_marked(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    folder = tmp_path / "run"
    server, endpoint = start_run(programs, folder)
    page = open_page(start_page(programs, folder))
    assert "token" not in page.url
    until(page, "(runs.get(0)?.points.mean_return_100 ?? []).filter((mean) => mean !== null).length >= 3")
    assert page.locator("#chart-return canvas").is_visible()
    until(page, "document.querySelectorAll('#workers tr[data-state=alive]').length === 2")

    page.get_by_role("button", name="Save a checkpoint now").click()
    until(page, "document.getElementById('steered').textContent.startsWith('saved: ')")
    assert Path(page.locator("#steered").inner_text().removeprefix("saved: ")).exists()

    page.get_by_role("textbox", name="learning rate").fill("0.00025")
    page.get_by_role("button", name="Adjust").click()
    until(page, "document.getElementById('steered').textContent === 'done'")
    wait_for(lambda: status_of(endpoint).learning_rate <= 0.00025)
    until(page, "document.getElementById('events').textContent.includes('learning_rate')")
    numbers = page.evaluate("runs.get(0).events.map((event) => `${event.epoch}.${event.number}`)")
    assert len(set(numbers)) == len(numbers), "each event is shown once"

    killed = next(program for program in programs.started if "worker-1" in program.process.args)
    killed.kill()
    until(page, "document.querySelector('#workers tr[data-worker=worker-1]')?.dataset.state === 'lost'")

    server.kill()
    until(page, "document.getElementById('link').textContent.includes('no server answers')")
    seen = steps_drawn(page)
    programs.start_server("--resume", str(folder), port=int(endpoint.rpartition(":")[2]), run_dir=folder)
    until(page, f"(runs.get(0)?.points.global_steps ?? []).filter((steps) => steps > 0).length > {seen}")
    assert status_of(endpoint).learning_rate <= 0.00025, "the adjustment is part of the run"


def test_the_game_of_a_chosen_worker_is_shown_live(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    folder = tmp_path / "run"
    start_run(programs, folder)
    page = open_page(start_page(programs, folder))
    until(page, "document.getElementById('watch').options.length === 3")
    assert page.locator("#game img").count() == 0, "nobody has asked for it"
    for worker in ("worker-0", "worker-1"):
        page.get_by_label("worker", exact=True).select_option(worker)
        until(page, f"document.querySelector('#game img')?.alt === 'the game of {worker}'")
        page.evaluate("pictures = new Set()")
        until(page, "pictures.add(document.querySelector('#game img').src).size >= 5")
    assert page.evaluate("document.querySelector('#game img').naturalWidth") > 100
    bars = page.evaluate("[...document.querySelectorAll('#game meter')].map((meter) => meter.value)")
    assert len(bars) == 2
    assert sum(bars) == pytest.approx(1, abs=1e-3)
    assert "value" in page.locator("#game p").inner_text()
    serious = [
        (found["id"], found["nodes"][0]["html"])
        for found in Axe().run(page).response["violations"]
        if found["impact"] in ("serious", "critical")
    ]
    assert serious == []
    page.get_by_label("worker", exact=True).select_option("")
    until(page, "document.querySelector('#game img') === null")


def test_past_runs_are_compared_and_the_page_is_sound_at_every_width(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    for seed in (1, 2):
        folder = tmp_path / "runs" / f"seed-{seed}"
        flags = ("--preset", "cartpole-a3c", "--seed", str(seed), "--max-steps", "12000", "--until-return", "None")
        run = programs.start("rl-cluster", *flags, "--workers", "1", "--run-dir", str(folder), "--no-web")
        assert run.wait(120) == 0
    address = start_page(programs, tmp_path / "runs")
    for width, dark in ((390, True), (390, False), (1440, True), (1440, False)):
        page = open_page(address, width=width, dark=dark)
        until(page, "runs.size === 2 && document.querySelectorAll('#chart-return canvas').length === 1")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing is cut off at the side"
        serious = [
            (found["id"], found["nodes"][0]["html"])
            for found in Axe().run(page).response["violations"]
            if found["impact"] in ("serious", "critical")
        ]
        assert serious == []
    page.get_by_role("checkbox", name="mean and range of all runs").check()
    until(page, "document.getElementById('chart-return').textContent.includes('mean of 2 runs')")
    page.get_by_role("radio", name="minutes").check()
    until(page, "document.querySelector('#chart-return [role=img]').getAttribute('aria-label').includes('minutes')")
    page.get_by_role("button", name="seed-2").click()
    until(page, "document.title.startsWith('seed-2')")


def test_a_page_opened_on_a_run_of_ten_million_steps_is_drawn_soon(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    rows = 40_000
    with (folder / "metrics.jsonl").open("w") as file:
        for row in range(rows):
            steps = 250 * row
            file.write(f'{{"time":{row},"minutes":{row / 30},"global_steps":{steps},"mean_return_100":{row % 500}}}\n')
    page = open_page(start_page(programs, folder))
    until(page, "document.querySelectorAll('#chart-return canvas').length === 1")
    sent = page.evaluate("runs.get(0).points.global_steps")
    assert sent[-1] == 250 * (rows - 1)
    assert len(sent) <= 1500
