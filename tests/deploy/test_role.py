"""docker/role.sh: what a container of each role runs. The programs are replaced by one that prints its arguments."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEY = "--curve-server-key /keys/server.key --curve-secret /keys/worker.key_secret"
LOCK = "--curve-secret /keys/server.key_secret --authorized-keys /keys/authorized"
PAIR = {"PRESET": "cartpole", "PEER": "localhost:5555"}


@dataclass
class Container:
    """The file system of a container, as far as the script sees it."""

    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    def role(self, *arguments: str, **variables: str) -> str:
        """The command that it becomes."""
        script = self.folder / "role.sh"
        script.write_text(
            (ROOT / "docker" / "role.sh")
            .read_text()
            .replace("/runs/", f"{self.runs}/")
            .replace("/token/", f"{self.folder}/")
        )
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        ended = subprocess.run(
            ["sh", script, *arguments], env={"PATH": path} | variables, capture_output=True, text=True, check=True
        )
        return ended.stdout.strip().replace(str(self.runs), "/runs")

    def has_run(self, name: str = "cartpole", *, replaced_by: str | None = None, epoch: int = 16777217) -> None:
        """A server has kept a checkpoint of that run here."""
        checkpoints = self.runs / name / "checkpoints"
        checkpoints.mkdir(parents=True)
        (checkpoints / "checkpoint-000000001024.safetensors").touch()
        lineage = {"run_id": "0a1b", "secret": "77", "epoch": epoch, "replaced_by": replaced_by}
        (self.runs / name / "lineage.json").write_text(json.dumps(lineage, indent=2))

    def peer_is(self, phase: str, *, run_id: str = "0a1b", epoch: int = 0) -> None:
        status = {"phase": phase, "run_id": run_id, "epoch": epoch, "workers": [{"epoch": 9}]}
        self.program("ps-ctl", f"echo '{json.dumps(status, separators=(',', ':'))}'")

    def program(self, name: str, body: str) -> None:
        program = self.folder / "bin" / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)


@pytest.fixture
def container(tmp_path: Path) -> Container:
    made = Container(tmp_path)
    (tmp_path / "bin").mkdir()
    for name in ("ps-server", "rl-worker", "ps-web"):
        made.program(name, 'echo "$(basename "$0")" "$@"')
    made.program("ps-ctl", "exit 1")  # nobody answers
    (made.runs / "pong" / "checkpoints").mkdir(parents=True)  # a run that had no time to save anything
    return made


@pytest.mark.parametrize(
    ("variables", "checkpoint_in", "expected"),
    [
        ({}, None, "--preset pong --run-dir /runs/pong --threads 2"),
        ({"PRESET": "cartpole", "RUN": ""}, None, "--preset cartpole --run-dir /runs/cartpole --threads 2"),
        ({"PRESET": "cartpole", "RUN": "second"}, "cartpole", "--preset cartpole --run-dir /runs/second --threads 2"),
        ({"PRESET": "cartpole"}, "cartpole", "--resume /runs/cartpole --threads 2"),
        ({"RUN": "second", "FLAGS": "--seed 1 --x"}, "second", "--resume /runs/second --seed 1 --x --threads 2"),
        ({"PRESET": ""}, None, "--run-dir /runs/run --threads 2"),
        ({"KEYS": "/keys"}, None, f"--preset pong --run-dir /runs/pong {LOCK} --threads 2"),
    ],
)
def test_the_server_resumes_its_run_where_there_is_a_checkpoint(
    container: Container, variables: dict[str, str], checkpoint_in: str | None, expected: str
) -> None:
    if checkpoint_in:
        container.has_run(checkpoint_in)
    assert container.role("server", "--threads", "2", **variables) == f"ps-server {expected}"


def test_the_first_of_a_pair_begins_the_run_and_the_second_follows(container: Container) -> None:
    flags = {"FLAGS": "--max-steps 9", **PAIR}
    container.peer_is("standby")
    begins = "ps-server --preset cartpole --run-dir /runs/cartpole --max-steps 9"
    assert container.role("server", BEGINS="yes", **flags) == begins
    follows = "ps-server --standby-of localhost:5555 --run-dir /runs/cartpole"
    assert container.role("server", **flags) == follows, "the flags of a run are not for a standby"
    assert container.role("server", KEYS="/keys", **PAIR) == f"{follows} {LOCK}"


def test_the_first_goes_on_with_its_run_though_its_peer_serves_for_epochs_decide(container: Container) -> None:
    """Both may have been started at once after a power failure, and the peer's state may be the older one."""
    container.has_run()
    container.peer_is("serving")
    assert container.role("server", BEGINS="yes", **PAIR) == "ps-server --resume /runs/cartpole"


@pytest.mark.parametrize("phase", ["serving", "draining"])
def test_the_first_without_its_disk_begins_no_second_run_beside_its_peer(container: Container, phase: str) -> None:
    container.peer_is(phase)
    follows = "ps-server --standby-of localhost:5555 --run-dir /runs/cartpole"
    assert container.role("server", BEGINS="yes", **PAIR) == follows
    container.peer_is("standby")
    assert container.role("server", BEGINS="yes", **PAIR) == follows, "it has become the standby for good"


@pytest.mark.parametrize("successor", ["10.0.0.2:5555", ""])
@pytest.mark.parametrize("begins", ["yes", ""])
def test_a_replaced_server_puts_its_older_state_aside_and_follows(
    container: Container, begins: str, successor: str
) -> None:
    follows = "ps-server --standby-of localhost:5555 --run-dir /runs/cartpole"
    for _ in range(2):  # replaced once and again: one older state is kept
        container.has_run(replaced_by=successor)
        assert container.role("server", BEGINS=begins, **PAIR) == follows
        assert not (container.runs / "cartpole").exists()
        assert (container.runs / "cartpole.replaced" / "lineage.json").exists()
    assert container.role("server", BEGINS=begins, **PAIR) == follows


@pytest.mark.parametrize("begins", ["yes", ""])
def test_a_server_whose_peer_has_the_run_in_a_later_epoch_follows_at_once(container: Container, begins: str) -> None:
    resumes = "ps-server --resume /runs/cartpole"
    follows = "ps-server --standby-of localhost:5555 --run-dir /runs/cartpole"
    container.has_run(epoch=2**40 + 5)
    for epoch in (2**40 + 4, 2**40 + 5):
        container.peer_is("serving", epoch=epoch)
        assert container.role("server", BEGINS=begins, **PAIR) == (resumes if begins else follows)
        assert (container.runs / "cartpole").exists()
    container.peer_is("serving", run_id="0a1c", epoch=2**41)
    container.role("server", BEGINS=begins, **PAIR)
    assert (container.runs / "cartpole").exists(), "another run"
    container.peer_is("standby", run_id="")
    container.role("server", BEGINS=begins, **PAIR)
    assert (container.runs / "cartpole").exists(), "a standby that has not got the run"
    container.peer_is("serving", epoch=2**40 + 6)
    assert container.role("server", BEGINS=begins, **PAIR) == follows
    assert not (container.runs / "cartpole").exists()
    assert (container.runs / "cartpole.replaced" / "lineage.json").exists()


def test_a_worker_has_its_own_key_alone(container: Container) -> None:
    assert container.role("worker", "--device", "cuda") == "rl-worker --server server:5555 --device cuda"
    assert container.role("worker", SERVERS="a:1,b:2", KEYS="/keys") == f"rl-worker --server a:1,b:2 {KEY}"


def test_a_probe_asks_the_server_with_the_keys_of_a_worker(container: Container) -> None:
    container.program("python", 'echo python "$@"')
    probe = "python /usr/local/bin/healthy.py 127.0.0.1:5555"
    assert container.role("healthy") == probe
    assert container.role("healthy", KEYS="/keys") == f"{probe} /keys/server.key /keys/worker.key_secret"
