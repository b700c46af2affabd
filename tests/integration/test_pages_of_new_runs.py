"""A run has a page from its start: each program that promises one is started on a new run, and its page is opened."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.integration.pages import open_page, printed_address, until
from tests.integration.processes import Program, Programs

pytestmark = pytest.mark.timeout(600)
__all__ = ["open_page"]  # a fixture

RUN = ("--preset", "cartpole-a3c", "--max-steps", "1000000000", "--until-return", "None")


def start_server(programs: Programs, folder: Path) -> Program:
    """A server, a worker, and a page that waits for the run."""
    _, endpoint = programs.start_server(*RUN, run_dir=folder)
    programs.start("rl-worker", "--server", endpoint)
    return programs.start("ps-web", "--wait", str(folder), "--port", "0")


def start_cluster(programs: Programs, folder: Path) -> Program:
    return programs.start("rl-cluster", *RUN, "--workers", "1", "--run-dir", str(folder))


@pytest.mark.parametrize(
    "start",
    [
        start_server,
        start_cluster,
    ],
)
def test_a_new_run_has_a_page_with_its_name_and_its_curve(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page], start: Callable[[Programs, Path], Program]
) -> None:
    page = open_page(printed_address(start(programs, tmp_path / "my-run")))
    until(page, "document.title === 'my-run · ps-rl'")
    until(page, "document.getElementById('link').dataset.state === 'live'")
    until(page, "document.getElementById('link').textContent.startsWith('my-run: CartPole-v1')")
    until(page, "last(runs.get(0).points.global_steps) > 0")
    until(page, "document.querySelector('#chart-return canvas')?.checkVisibility()")
