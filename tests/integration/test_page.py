"""The page in a real browser, beside a real run of CartPole."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.integration.pages import open_page, printed_address, until
from tests.integration.processes import Program, Programs, status_of, wait_for

NO_END = ("--max-steps", "1000000000", "--until-return", "None")

pytestmark = pytest.mark.timeout(600)
__all__ = ["open_page"]  # a fixture


def start_page(programs: Programs, *flags: object) -> str:
    """The address of a page, with its token."""
    token = programs.folder / "token"
    token.write_text("a-secret-of-a-test")
    soon = {"ps_web.link.SILENT_SECONDS": 1.5, "ps_web.run.STILL_SECONDS": 3.0}
    page = programs.start("ps-web", *map(str, flags), "--port", "0", "--token-file", str(token), constants=soon)
    return f"{printed_address(page)}?token={token.read_text()}"


@dataclass
class Cluster:
    """A primary, its standby, and two workers that know both."""

    server: Program
    standby: Program
    addresses: tuple[str, str]
    folders: tuple[Path, Path]


def start_cluster(programs: Programs, folder: Path) -> Cluster:
    flags = ("--preset", "cartpole-a3c", "--lease-seconds", "2", *NO_END)
    folders = (folder / "primary", folder / "standby")
    server, first = programs.start_server(*flags, run_dir=folders[0])
    standby, second = programs.start_server("--standby-of", first, "--takeover-seconds", "2", run_dir=folders[1])
    for number in range(2):
        programs.start("rl-worker", "--server", f"{first},{second}", "--name", f"worker-{number}")
    return Cluster(server, standby, (first, second), folders)


def steps_drawn(page: Page) -> int:
    """The newest T of the curves."""
    return int(page.evaluate("last(runs.get(0)?.points.global_steps) ?? 0"))


def serious_violations(page: Page) -> list[Any]:
    return [
        (found["id"], found["nodes"][0]["html"])
        for found in Axe().run(page).response["violations"]
        if found["impact"] in ("serious", "critical")
    ]


def test_a_run_is_watched_and_steered_and_its_page_survives_takeover_and_restart(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    cluster = start_cluster(programs, tmp_path)
    page = open_page(start_page(programs, cluster.folders[0]))
    assert "token" not in page.url
    until(page, "(runs.get(0)?.points.mean_return_100 ?? []).filter((mean) => mean !== null).length >= 3")
    assert page.locator("#chart-return canvas").is_visible()
    until(page, "document.querySelectorAll('#workers tr[data-state=alive]').length === 2")
    page.locator("#plumbing-rank summary").click()
    until(page, "document.querySelector('#chart-staleness-histogram')?.checkVisibility()")

    live_games_move(page)
    it_is_steered(page, cluster)

    killed = next(program for program in programs.started if "worker-1" in program.process.args)
    killed.kill()
    until(page, "document.querySelector('#workers tr[data-worker=worker-1]')?.dataset.state === 'lost'")
    assert "silent for longer than its lease" in page.locator("#workers tr[data-worker=worker-1]").inner_text()

    wait_for(lambda: "follows as the standby" in cluster.server.output, program=cluster.server)
    cluster.server.kill()
    until(page, f"runs.get(0).address === '{cluster.addresses[1]}'")
    seen = steps_drawn(page)
    until(page, f"last(runs.get(0).points.global_steps) > {seen}")
    assert status_of(cluster.addresses[1]).learning_rate <= 0.00025, "the standby has the adjustment"

    cluster.standby.kill()
    until(page, "document.getElementById('link').textContent.includes('no server answers')")
    seen, port = steps_drawn(page), int(cluster.addresses[1].rpartition(":")[2])
    programs.start_server("--resume", str(cluster.folders[1]), port=port, run_dir=cluster.folders[1])
    until(page, f"last(runs.get(0).points.global_steps) > {seen}")
    assert status_of(cluster.addresses[1]).learning_rate <= 0.00025, "the adjustment is part of the run"
    numbers = page.evaluate("runs.get(0).events.map((event) => `${event.epoch}.${event.number}`)")
    assert len(set(numbers)) == len(numbers), "each event is shown once"


def live_games_move(page: Page) -> None:
    assert page.locator("#game img").count() == 0, "nobody has asked for it"
    for worker in ("worker-0", "worker-1"):
        page.get_by_label("live game of").select_option(worker)
        until(page, f"document.querySelector('#game img')?.alt === 'the game of {worker}'")
        page.evaluate("pictures = new Set()")
        until(page, "pictures.add(document.querySelector('#game img').src).size >= 5")
    assert page.evaluate("document.querySelector('#game img').naturalWidth") > 100
    bars = page.evaluate("[...document.querySelectorAll('#game meter')].map((meter) => meter.value)")
    assert len(bars) == 2
    assert sum(bars) == pytest.approx(1, abs=1e-3)
    assert "value" in page.locator("#game p").inner_text()
    assert serious_violations(page) == []
    page.get_by_label("live game of").select_option("")
    until(page, "document.querySelector('#game img') === null")
    assert page.locator("#steered").inner_text() == "", "nobody has stopped the run"


def it_is_steered(page: Page, cluster: Cluster) -> None:
    told = "document.getElementById('steered').textContent"
    page.get_by_role("button", name="Save a checkpoint now").click()
    until(page, f"{told}.startsWith('saved: ')")
    assert Path(page.locator("#steered").inner_text().removeprefix("saved: ")).exists()

    learning_rate = page.get_by_role("textbox", name="learning rate")
    for wrong in ("-1", "1e300", "NaN"):
        learning_rate.fill(wrong)
        page.get_by_role("button", name="Adjust").click()
        until(page, f"/not allowed|expected|must be a number/.test({told})")
        page.evaluate("document.getElementById('steered').textContent = ''")
    assert status_of(cluster.addresses[0]).adjustments == ()

    learning_rate.fill("0.00025")
    page.get_by_role("button", name="Adjust").click()
    until(page, f"{told} === 'done'")
    wait_for(lambda: status_of(cluster.addresses[0]).learning_rate <= 0.00025)
    until(page, "document.getElementById('events').textContent.includes('learning_rate')")
    until(page, "document.getElementById('adjustments').textContent.includes('→ 0.00025 · by ps-web')")

    page.get_by_role("button", name="Pause").click()
    until(page, "document.getElementById('link').dataset.state === 'paused'")
    page.get_by_role("button", name="Resume").click()
    until(page, "document.getElementById('link').dataset.state === 'live'")


LINES = {  # of the files of a run, by number
    "metrics.jsonl": '{"time":%d,"minutes":%d,"global_steps":%d,"mean_return_100":7}\n',
    "episodes.jsonl": '{"episode":%d,"minutes":%d,"global_steps":%d,"episode_return":7,"length":9}\n',
    "events.jsonl": '{"time":0,"epoch":1,"number":%d,"minutes":%d,"global_steps":%d,"kind":"note","text":"so"}\n',
}


def add_lines(folder: Path, count: int, *, first: int) -> None:
    """To each file of a run folder: a row for every 250 steps."""
    for name, line in LINES.items():
        with (folder / name).open("a") as file:
            file.write("".join(line % (k, k // 30, 250 * k) for k in range(first, first + count)))


def test_a_page_of_a_run_of_ten_million_steps_is_sent_few_points_and_stays_bounded_however_long_it_is_open(
    programs: Programs, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    folder = tmp_path / "long"
    folder.mkdir()
    rows = 40_000
    add_lines(folder, rows, first=1)
    page = open_page(start_page(programs, folder))
    until(page, "document.querySelectorAll('#chart-return canvas').length === 1")
    for table, order in (("points", "global_steps"), ("episodes", "episode")):
        sent = page.evaluate(f"runs.get(0).{table}.{order}")
        assert sent[-1] == (250 * rows if table == "points" else rows)
        assert len(sent) <= 1500

    for _ in range(2):
        add_lines(folder, 20_000, first=rows + 1)
        rows += 20_000
        until(page, f"last(runs.get(0).points.global_steps) === {250 * rows}")
        until(page, f"last(runs.get(0).events).number === {rows}")
    columns = "[runs.get(0).points.global_steps, runs.get(0).episodes.episode, runs.get(0).events]"
    assert max(page.evaluate(f"{columns}.map((column) => column.length)")) <= 3000
    page.evaluate("runs.get(0).watched = 'w'")
    frame = {"run": 0, "worker": "w", "image": "", "score": 1, "value": 1, "taken": "a"}
    frame |= {"actions": ["a"], "probabilities": [1]}
    nodes = "document.querySelectorAll('*').length"
    few, many = page.evaluate(
        f"(frame) => [1, 5000].map((k) => {{ while (k--) drawFrame(frame); return {nodes}; }})", frame
    )
    assert few == many, "no frame leaves anything behind"
