"""The last word of a page: how the run ended, and nothing that has the look of a live run."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.integration.pages import open_page, pages_of, printed_address, until
from tests.integration.processes import Program, Programs

pytestmark = pytest.mark.timeout(600)
__all__ = ["open_page"]  # a fixture

LOSSES = "(runs.get(0)?.points.loss ?? []).filter((loss) => loss !== null).length"
TOKEN = "a-secret-of-a-test"
ENDLESS = ("--preset", "cartpole-a3c", "--max-steps", "1000000000", "--until-return", "None")
LINK = "document.getElementById('link').textContent"
# The status alone draws a curve of one point, which goes with the status.
A_RECORDED_RETURN = "(runs.get(0)?.points.mean_return_100 ?? []).some((mean) => mean !== null)"
AN_ALIVE_WORKER = "document.querySelector('#workers tr[data-state=alive]') !== null"


def start_cluster(programs: Programs, folder: Path, *flags: str) -> Program:
    return programs.start("rl-cluster", *ENDLESS, "--workers", "1", "--run-dir", str(folder), *flags)


def it_is_over(page: Page, *said: str) -> None:
    """The page says all of that; it shows no worker, and offers no steering."""
    for text in said:
        until(page, f"{LINK}.includes({text!r})")
    assert page.locator("#workers tbody tr").count() == 0
    assert not page.locator("#adjust").is_visible()
    assert page.evaluate("[...document.getElementById('adjust').elements].every((element) => element.disabled)")
    assert page.locator("#chart-return canvas").is_visible(), "the past stays"


def test_the_last_word_is_how_the_run_ended(programs: Programs, tmp_path: Path, open_page: Callable[..., Page]) -> None:
    said = ("reached 150 in training after ", "the last 100 games")
    cluster = start_cluster(programs, tmp_path / "my-run", "--until-return", "150")
    page = open_page(printed_address(cluster))
    assert cluster.wait(120) == 0, cluster.output
    it_is_over(page, "my-run: CartPole-v1, ", *said)
    sentence = next(line for line in cluster.output.splitlines() if line.startswith(said[0]))
    assert sentence in page.locator("#link").inner_text(), "the terminal says the same"
    assert page.locator("#no-workers").inner_text() == "The run is over: it has no workers."
    assert page.locator("#steer-hint").inner_text() == "The run is over."
    until(page, "document.getElementById('run-state').textContent === 'target reached'")

    live = page.evaluate(LOSSES)
    assert live >= 2, "also a run of seconds has a curve of its loss"
    later = open_page(printed_address(programs.start("ps-web", str(tmp_path / "my-run"), "--port", "0")))
    until(later, f"{LOSSES} >= {live}")
    until(later, "document.querySelectorAll('#facts code').length >= 4")
    commands = later.locator("#facts code").all_inner_texts()
    assert commands[0].startswith("rl-cluster --preset cartpole-a3c"), "how it was begun"
    assert f"--resume {tmp_path / 'my-run'}" in commands[3], "what may be typed next"


def test_a_page_whose_program_is_gone_says_so_and_takes_no_worker_for_alive(
    programs: Programs, tmp_path: Path, browser: Browser
) -> None:
    """The run goes on; of a killed program the browser's console names the refused connections."""
    _, endpoint = programs.start_server(*ENDLESS, run_dir=tmp_path / "my-run")
    programs.start("rl-worker", "--server", endpoint)
    (tmp_path / "token").write_text(TOKEN)
    flags = (str(tmp_path / "my-run"), "--token-file", str(tmp_path / "token"))
    web = programs.start("ps-web", *flags, "--port", "0")
    address = f"{printed_address(web)}?token={TOKEN}"
    with pages_of(browser, []) as opened:
        page = opened(address)
        until(page, AN_ALIVE_WORKER)
        until(page, A_RECORDED_RETURN)
        web.kill()
        told = ("this is the run as it was seen last. ps-web does not answer since ", "trying again …")
        it_is_over(page, "my-run: CartPole-v1, ", *told)
        port = address.partition("127.0.0.1:")[2].partition("/")[0]
        programs.start("ps-web", *flags, "--port", port)
        until(page, AN_ALIVE_WORKER)
        until(page, f"{LINK}.includes('training at')")
        assert page.locator("#adjust").is_visible()
