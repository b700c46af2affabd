"""The charts of the page and the view of one run, on the folders of runs that are over."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from ps_common.run_folder.paths import BEST, CHECKPOINTS, COMMAND
from ps_common.settings.run_files import load_preset
from tests.integration.pages import open_page, printed_address, until
from tests.integration.processes import Programs
from tests.integration.test_page import serious_violations

pytestmark = pytest.mark.timeout(600)
__all__ = ["open_page"]  # a fixture

ROWS = 100
HOSTILE = '<img src=x onerror="document.title=1">'
DRAWN = "document.querySelectorAll('#chart-loss canvas').length === 1"
LOSS = "charts.find((chart) => chart.spec.id === 'loss')"


def write_run(folder: Path, *, slope: float = 1.0, end: str = "") -> Path:
    """A run that learned something else every step, was adjusted at step 5,000, and is over because of `end`."""
    (folder / CHECKPOINTS).mkdir(parents=True)
    (folder / CHECKPOINTS / BEST).touch()
    (folder / COMMAND).write_text("rl-cluster --preset cartpole-a3c --seed 7\n")
    (folder / "run.toml").write_text(load_preset("cartpole-a3c").to_toml())
    known = {"phase": "serving", "epoch": 1, "refused": {}, "not_modified": 0, "checkpoint_failures": 0}
    rows, events = [], []
    for k in range(1, ROWS + 1):
        meters = {"loss": slope * (k - 50), "custom/wins": k / ROWS}
        score = {"mean_return_100": slope * k, "best_mean_return_100": slope * k, "workers_alive": 1, "episodes": 3 * k}
        at = {"time": 1000.0 + 10 * k, "minutes": k / 10, "global_steps": 100 * k, "checkpoint_version": k}
        rows.append(known | at | score | {"meters": meters, "ending": end if k == ROWS else ""})
        events.append({"epoch": 1, "number": k, "kind": "checkpoint", "text": f"version {k} saved", **at})
    events[49] |= {"kind": "adjustment", "text": f"learning_rate 0.1 → 0.2 by {HOSTILE}"}
    logged = [
        {"time": row["time"], "global_steps": row["global_steps"], "name": "my/gap", "value": 2.0} for row in rows
    ]
    numbers = [{"version": k, "games": 5, "mean_return": 2.0 * slope * k} for k in range(1, ROWS + 1)]
    scores = [
        {name: row[name] for name in ("time", "global_steps", "minutes", "episodes")} | own
        for row, own in zip(rows, numbers, strict=True)
    ]
    files = {"metrics": rows, "events": events, "logged": logged, "evaluations": scores}
    for name, lines in files.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def page_of(programs: Programs, folder: Path) -> str:
    return printed_address(programs.start("ps-web", str(folder), "--port", "0"))


def plot_box(page: Page, chart: str) -> dict[str, float]:
    place = page.locator(f"#chart-{chart} .u-over")
    place.scroll_into_view_if_needed()
    box = place.bounding_box()
    assert box is not None
    return dict(box)


def test_evaluations_are_a_curve_beside_the_returns_of_training(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    page = open_page(page_of(programs, write_run(tmp_path / "run", slope=2.0)))
    line = "returns.lines.findIndex((one) => one.label === 'evaluation')"
    until(page, f"returns.raw && {line} >= 0")
    assert page.evaluate(f"returns.raw[{line}].filter((y) => y !== null).at(-1)") == 4.0 * ROWS
    assert page.evaluate("!charts.some((chart) => chart.spec.key === 'evaluation/mean_return')"), "not once more"


def test_charts_are_zoomed_and_smoothed_and_a_reload_keeps_the_view(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    for name, slope in (("steep", 2.0), ("=flat", 1.0)):
        write_run(tmp_path / "runs" / name, slope=slope)
    page = open_page(page_of(programs, tmp_path / "runs"))
    until(page, DRAWN)
    box = plot_box(page, "loss")
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, middle, steps=4)
    page.mouse.up()
    until(page, f"{LOSS}.plot.scales.x.min > 2000 && {LOSS}.plot.scales.x.max < 8000")
    assert page.evaluate("returns.plot.scales.x.min === " + LOSS + ".plot.scales.x.min"), "all charts have one range"
    page.get_by_label("smoothing").fill("0.5")
    page.get_by_role("group", name="logarithmic").get_by_label("y").check()
    zoomed = page.evaluate(f"[{LOSS}.plot.scales.x.min, {LOSS}.plot.scales.x.max]")
    page.reload()
    until(page, DRAWN)
    assert page.evaluate(f"[{LOSS}.plot.scales.x.min, {LOSS}.plot.scales.x.max]") == pytest.approx(zoomed, rel=1e-6)
    assert page.get_by_label("smoothing").input_value() == "0.5"
    assert page.evaluate(f"{LOSS}.plot.series.length") == 1 + 2 * 2, "the raw lines stay behind the smooth ones"

    box = plot_box(page, "loss")
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    until(page, "document.querySelector('#chart-loss .tip').checkVisibility()")
    tip = page.locator("#chart-loss .tip").inner_text()
    for said in ("steep", "=flat", " steps", "adjusted: learning_rate"):
        assert said in tip
    page.mouse.dblclick(box["x"] + box["width"] / 2, box["y"] + 20)
    until(page, f"{LOSS}.plot.scales.x.max === 10000")

    page.get_by_role("radio", name="episodes").check()
    until(page, f"{LOSS}.plot.scales.x.max === {3 * ROWS}")


def test_a_run_that_is_over_says_how_it_ended_how_it_was_begun_and_what_was_adjusted(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    address = page_of(programs, write_run(tmp_path / "run", end="max_minutes 10 reached"))
    for width, dark in ((390, True), (1440, False)):
        page = open_page(address, width=width, dark=dark)
        until(page, DRAWN)
        page.locator("#settings summary").click()
        page.locator("#plumbing-rank summary").click()
        until(page, "document.getElementById('settings-text').innerText.includes('[schedule]\\nlearning_rate = ')")
        until(page, "document.querySelector('#chart-workers-alive canvas')?.checkVisibility()")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert serious_violations(page) == []
    assert page.locator("#run-state").inner_text() == "over"
    assert "max_minutes 10 reached" in page.locator("#link").inner_text()
    facts = page.locator("#facts").inner_text()
    for fact in (
        "rl-cluster --preset cartpole-a3c --seed 7",
        "rl-eval --checkpoint",
        "990 s",
    ):
        assert fact.replace("990 s", "16.5 min") in facts
    assert "99 checkpoints, the newest: version 100 saved" in page.locator("#events").inner_text()
    for custom in ("custom/wins", "my/gap"):
        assert page.locator("#learning").get_by_text(custom).is_visible(), "a custom number is a curve, too"

    mark = f"{LOSS}.plot.valToPos(5000, 'x', true)"
    ink = f"{LOSS}.plot.ctx.getImageData(Math.round({mark}), {LOSS}.plot.bbox.top, 1, {LOSS}.plot.bbox.height).data"
    warn = page.evaluate("style('--warn').match(/\\w\\w/g).map((part) => parseInt(part, 16))")
    pixels = page.evaluate(f"[...{ink}]")
    near = [
        pixels[k : k + 3] for k in range(0, len(pixels), 4) if max(abs(pixels[k + c] - warn[c]) for c in range(3)) < 40
    ]
    assert len(near) > 20, "a line stands where the learning rate was changed"
    assert HOSTILE in str(page.locator("#chart-loss [role=img]").get_attribute("aria-label"))
    assert page.locator("img").count() == 0
