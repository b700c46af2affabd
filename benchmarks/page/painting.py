"""
How soon a page of a long run is drawn: `python -m benchmarks.page.painting`.

The run folder is as long as a run of ten million steps can make it: a quarter of a million episodes, 28 hours of
metrics. The time runs from the navigation of a browser to the first curve. The first page reads the folder; further
ones do not.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.page.chromium import chromium

STEPS = 10_000_000
EPISODES, METRICS, WORKERS = 250_000, 50_000, 4
PAGES = 5
CURVE = "document.querySelectorAll('#chart-return canvas').length > 0"


def write_run(folder: Path) -> None:
    """The files that the page reads."""
    with (folder / "episodes.jsonl").open("w") as file:
        for k in range(1, EPISODES + 1):
            where = f'"episode":{k},"global_steps":{k * STEPS // EPISODES},"minutes":{k / 150}'
            file.write(f'{{{where},"worker":"worker-{k % WORKERS}","episode_return":{k % 500},"length":{k % 500}}}\n')
    with (folder / "metrics.jsonl").open("w") as file:
        for k in range(1, METRICS + 1):
            where = f'"time":{2 * k},"minutes":{k / 30},"global_steps":{k * STEPS // METRICS}'
            meters = '"meters":{"loss":1.0,"entropy":0.5,"policy_loss":0.1,"value_loss":0.4,"value":4.0}'
            rest = (
                f'"mean_return_100":{k % 500},"steps_per_second":99,"learning_rate":0.001,{meters},"pad":"{"x" * 500}"'
            )
            file.write(f"{{{where},{rest}}}\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as parent:
        folder, address = Path(parent) / "run", Path(parent) / "page"
        folder.mkdir()
        write_run(folder)
        command = [sys.executable, "-m", "ps_web", str(folder), "--port", "0", "--address-file", str(address)]
        web = subprocess.Popen(command)
        try:
            while not address.exists():
                assert web.poll() is None, "ps-web has failed"
                time.sleep(0.1)
            measure(address.read_text())
        finally:
            web.terminate()
            web.wait()


def measure(address: str) -> None:
    with chromium() as browser:
        browser.new_page().close()  # the browser's own start does not count
        for number in range(1, PAGES + 1):
            page = browser.new_context().new_page()
            start = time.monotonic()
            page.goto(address, wait_until="commit")
            while not page.evaluate(CURVE):
                page.wait_for_timeout(10)
            print(f"page {number}: drawn after {time.monotonic() - start:.2f} s", flush=True)
            page.context.close()


if __name__ == "__main__":
    main()
