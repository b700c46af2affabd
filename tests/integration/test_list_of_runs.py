"""The list of runs on the page, in a real browser: many folders, words, a sweep, seeds; a link keeps the view."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from playwright.sync_api import Page

from tests.integration.pages import open_page, printed_address, until
from tests.integration.processes import Programs
from tests.integration.test_page import serious_violations

pytestmark = pytest.mark.timeout(300)
__all__ = ["open_page"]  # a fixture

DRAWN_ANEW = "(() => { listed = ''; const began = performance.now(); drawList(); return performance.now() - began; })()"
ROW: dict[str, Any] = {
    "time": 1.0,
    "phase": "serving",
    "epoch": 1,
    "refused": {},
    "not_modified": 0,
    "checkpoint_version": 0,
    "checkpoint_failures": 0,
    "workers_alive": 0,
}


def make_run(folder: Path, settings: Mapping[str, Mapping[str, Any] | int | str], *, score: float = 10.0) -> None:
    """A run that is over, with a curve that rises to its score."""
    folder.mkdir(parents=True)
    tables = {"environment": {"id": "CartPole-v1"}, "algorithm": {"name": "a3c"}} | dict(settings)
    (folder / "run.toml").write_bytes(msgspec.toml.encode(tables))
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range(1, 11):
            row = {"global_steps": 1000 * step, "minutes": 0.1 * step, "mean_return_100": score * step / 10}
            row["meters"] = {"loss": 1 / step}
            file.write(json.dumps(ROW | row) + "\n")


def page_of(programs: Programs, folder: Path, open_page: Callable[..., Page]) -> Page:
    page = open_page(printed_address(programs.start("ps-web", str(folder), "--port", "0")))
    until(page, "lines.length > 1 && runs.size > 0 && document.querySelectorAll('.run-row').length > 1")
    return page


def test_a_thousand_runs_are_listed_and_found_by_words(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page], capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(1000):
        make_run(tmp_path / f"run-{number:03}", {"seed": number}, score=number)
    web = programs.start("ps-web", str(tmp_path), "--port", "0")
    address, began = printed_address(web), time.monotonic()
    process = psutil.Process(web.process.pid)
    before = sum(process.cpu_times()[:2])
    page = open_page(address)
    until(page, "document.querySelectorAll('.run-row').length === 1000")
    with capsys.disabled():
        print(f"\n1,000 runs are listed after {time.monotonic() - began:.1f} s")
    read = sum(process.cpu_times()[:2]) - before
    drawn = min(page.evaluate(DRAWN_ANEW) for _ in range(5)) / 1000
    assert read + drawn < 2, f"{read:.1f} s of processor time to read the folders, {drawn:.1f} s to draw the list"
    until(page, "runs.size > 0")
    assert page.evaluate("runs.size") <= page.evaluate("SHOWN_AT_FIRST"), "the curves of the others are not loaded"
    for text, count in (("run-99", 10), ("RUN cartpole", 1000), ("run-99 7", 1)):
        page.fill("#filter", text)
        until(page, f"document.querySelectorAll('.run-row').length === {count}")
    assert page.locator("#runs-count").inner_text() == "1 of 1000"
    page.fill("#filter", "run-99")
    make_run(tmp_path / "run-99-late", {"seed": 5}, score=2000)
    until(page, "document.querySelector('.run-row button').textContent === 'run-99-late'")


def test_the_runs_of_a_sweep_are_told_apart_by_their_settings_and_a_link_keeps_the_view(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    for number in range(12):
        schedule, network = {"learning_rate": 10 ** (-2 - number / 12)}, {"hidden": [16 * (1 + number % 2)]}
        make_run(tmp_path / f"sweep-{number:02}", {"experiment": "sweep", "schedule": schedule, "network": network})
    make_run(tmp_path / "other", {"environment": {"id": "Acrobot-v1"}})
    page = page_of(programs, tmp_path, open_page)
    assert page.evaluate("[...runs.values()].map((run) => run.name)") == ["other"], "the group of the newest"
    page.locator(".group", has_text="sweep (12)").get_by_role("button").click()
    until(page, "runs.size === 12 && document.title.startsWith('sweep-')")
    heads = page.locator("#compared thead th").all_inner_texts()
    assert heads == ["run", "return", "best", "steps", "minutes", "hidden", "learning_rate"]
    until(page, "document.querySelectorAll('#compared tbody tr').length === 12")
    page.get_by_role("button", name="sweep-07").click()
    until(page, "document.title.startsWith('sweep-07')")
    page.fill("#filter", "sweep")
    page.locator('input[name="x"][value="minutes"]').check()
    colours = page.evaluate("[...runs.values()].map((run) => [run.name, colour(run.id)])")
    assert len({colour for _, colour in colours}) >= 10
    drawn = page.evaluate("[...runs.values()].map((run) => CSS.supports('color', colour(run.id)))")
    assert all(drawn)

    for again in (page, open_page(page.url)):
        again.reload()
        until(again, "runs.size === 12 && document.title.startsWith('sweep-07')")
        assert again.input_value("#filter") == "sweep"
        assert again.locator('input[name="x"][value="minutes"]').is_checked()
        assert again.evaluate("[...runs.values()].map((run) => [run.name, colour(run.id)])") == colours
    narrow = open_page(page.url, width=390, dark=True)
    until(narrow, "runs.size === 12 && document.querySelectorAll('#compared tbody tr').length === 12")
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 390, "nothing is cut off at the side"
    for one in (page, narrow):
        assert serious_violations(one) == []


def test_seeds_of_the_same_settings_are_a_mean_and_a_band_and_another_environment_is_not_among_them(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    for seed in range(3):
        make_run(tmp_path / f"seed-{seed}", {"seed": seed}, score=100 + seed)
        make_run(tmp_path / f"fast-{seed}", {"seed": seed, "schedule": {"learning_rate": 0.01}}, score=200 + 10 * seed)
    make_run(tmp_path / "other", {"seed": 7, "environment": {"id": "Acrobot-v1"}}, score=500)
    page = page_of(programs, tmp_path, open_page)
    page.evaluate("tick(lines.map((line) => line.id))")
    until(page, "runs.size === 7")
    until(page, "document.querySelectorAll('#chart-loss canvas').length === 1")
    first = "document.querySelector('#chart-loss .values').innerText.split(' ')[0]"
    until(page, f"{first} === document.getElementById('run-name').innerText")
    named = page.locator("#chart-loss .values").inner_text()
    assert named.count("-") + named.count("other") == 1, "only the run that is open is named above a small chart"
    page.locator("#band").check()
    until(page, "returns.values.textContent.includes('mean of 3 seeds')")
    labels = page.evaluate("returns.lines.map((line) => line.label)")
    assert [label for label in labels if label in ("other", "seed-0", "seed-1", "seed-2")] == ["other"]
    values = page.locator("#chart-return .values").inner_text()
    assert "learning_rate 0.01: mean of 3 seeds 210 (200 to 220)" in values.replace("environment CartPole-v1, ", ""), (
        "named by what differs"
    )
    assert "highest" not in values
    group = "bySeed(shownRuns()).find((group) => group.some((run) => run.name === 'seed-0'))"
    mean = page.evaluate(f"bandOf({group}, 'global_steps')[2].ys")
    assert mean[-1] == pytest.approx(101)
