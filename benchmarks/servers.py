"""Programs that a benchmark measures: started with a run folder of their own, and ended with it."""

import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import ENDPOINT


@contextmanager
def serving(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """A server, or a program that starts one: its HOST:PORT and its process id. It takes --run-dir."""
    with tempfile.TemporaryDirectory() as folder:
        whole = [*command, "--run-dir", folder]
        process = subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not (address := read_endpoint(Path(folder) / ENDPOINT)):
                assert process.poll() is None, f"{whole} has failed"
                time.sleep(0.05)
            yield address, process.pid
        finally:
            process.terminate()
            process.wait()
