"""A disk that is frozen, and outputs that take nothing: the server goes on, and ends when it is asked to."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ps_common.run_folder.paths import METRICS
from tests.integration.processes import Programs, status_of, wait_for
from tests.rows import nightly

FOREVER = ["--preset", "cartpole", "--max-steps", "100000000", "--until-return", "1000"]
IMAGE_BYTES = 2**26


class Disk:
    """A file system in a file, which can be frozen: a writer there waits, and cannot even be killed."""

    def __init__(self, folder: Path) -> None:
        self.place = folder / "disk"
        self.place.mkdir()
        image = folder / "image"
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        _run("mkfs.ext4", "-q", str(image))
        _run("mount", "-o", "loop", str(image), str(self.place))
        self._is_frozen = False

    def freeze(self) -> None:
        _run("fsfreeze", "--freeze", str(self.place))
        self._is_frozen = True

    def thaw(self) -> None:
        if self._is_frozen:
            self._is_frozen = False
            _run("fsfreeze", "--unfreeze", str(self.place))

    def remove(self) -> None:
        _run("umount", str(self.place))


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be frozen here: {error}")


@pytest.fixture
def disk(tmp_path: Path, programs: Programs) -> Iterator[Disk]:
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("only root can mount and freeze a file system")
    disk = Disk(tmp_path)
    yield disk
    disk.thaw()  # first of all: a program that waits for it cannot be killed
    programs.end_all()
    disk.remove()


@pytest.mark.timeout(300)
def test_a_frozen_disk_stops_no_training_and_no_end(programs: Programs, tmp_path: Path, disk: Disk) -> None:
    run = disk.place / "run"
    server, endpoint = programs.start_server(*FOREVER, "--checkpoint-seconds", "0.5", run_dir=run)
    worker = programs.start("rl-worker", "--server", endpoint)
    wait_for(lambda: status_of(endpoint).checkpoint_version > 1, program=server)
    disk.freeze()
    # A status may be a quarter of a second old: this one is of after the freeze, and so is its version.
    seen = status_of(endpoint).version
    wait_for(lambda: status_of(endpoint).version > seen, program=server)
    trained = status_of(endpoint).version
    wait_for(lambda: status_of(endpoint).version > trained + 500, program=server)
    assert status_of(endpoint).checkpoint_version <= trained
    disk.thaw()
    wait_for(lambda: status_of(endpoint).checkpoint_version > trained, program=server)
    size = (run / METRICS).stat().st_size
    wait_for(lambda: (run / METRICS).stat().st_size > size, program=server)
    server.signal(signal.SIGTERM)
    assert server.wait() == 0, server.output
    assert worker.process.poll() is None, "it waits for a server that comes back"


@pytest.mark.parametrize(
    "output",
    [
        "a full disk",
        nightly("a pipe that nobody reads any more"),
        nightly("a pipe without a reader"),
    ],
)
def test_a_server_whose_output_cannot_be_written_serves_and_ends(tmp_path: Path, output: str) -> None:
    """`ps-server >/dev/full` left a traceback, and a process that kept its port and could not be ended."""
    reader, writer = os.pipe()
    if output == "a full disk":
        os.close(writer)
        writer = os.open("/dev/full", os.O_WRONLY)
    if output == "a pipe that nobody reads any more":
        os.set_blocking(writer, False)
        filled = 0
        while filled < 2**22:
            try:
                filled += os.write(writer, b"x" * 4096)
            except BlockingIOError:
                break
        os.set_blocking(writer, True)
        os.read(reader, 4096)  # room for the first lines
    else:
        os.close(reader)
    run = tmp_path / "run"
    server = subprocess.Popen(
        [str(Path(sys.executable).with_name("ps-server")), "--host", "127.0.0.1", "--port", "0", "--run-dir", str(run)],
        stdout=writer,
        stderr=writer,
    )
    try:
        wait_for(lambda: (run / "endpoint").exists() and (run / "endpoint").read_text().strip())
        endpoint = (run / "endpoint").read_text().strip()
        assert status_of(endpoint).phase == "empty"
        server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    finally:
        server.kill()
        server.wait()
        os.close(writer)
        if output == "a pipe that nobody reads any more":
            os.close(reader)
