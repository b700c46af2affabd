"""
The blocks of commands run for real, in a folder of their own: `make docs-test`. Each command is tried until what its
page promises is seen (promises.py).

The substitutions, and no others:
  addresses    HOST:5555 is a live server of CartPole, or the server that the block has started; ports are free ones
  budgets      a preset of minutes becomes cartpole-a3c, its target 20 becomes 499; rl-cluster gets --max-steps 3000,
               and a resumed run more than it has had
  folders      RUN_DIR and its like are copies of a finished run
  the end      a primary with a standby is killed, and the standby seen to take over; then what serves or watches is
               ended by SIGTERM, in order
  make train   the rl-cluster that it starts: tests/test_makefile.py has the rest
Commands of the system, containers and clusters have tests of their own, which ELSEWHERE names.
"""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.documents.commands import ROOT, Block, all_blocks, commands_in, lines_of
from tests.documents.promises import Sight, promise_of
from tests.integration.processes import Program, Programs, programs_in, status_of, wait_for

# What runs until it is ended: by words of its command, with the line that says so.
SERVES = {
    frozenset({"ps-server"}): "ps-server listens on",
    frozenset({"ps-web"}): "page: ",
    frozenset({"rl-worker"}): "joining",
    frozenset({"rl-cluster", "--server"}): "joining",
    frozenset({"ps_track", "--follow"}): "Run data is saved locally",
}
CARTPOLE = ("--preset", "cartpole-a3c")
# Blocks that are run by other tests, or not at all: by the first words of their first command.
ELSEWHERE = {
    "git clone": "tests/test_makefile.py",
    "docker": "tests/integration/test_docker.py",
    "make .venv/run.ready": "deploy/slurm/scenario.py",
    "sbatch": "deploy/slurm/scenario.py",
    "scancel": "deploy/slurm/scenario.py",
    "make scale": "tests/benchmarks/test_scale.py",
    "pip install -c constraints.txt .[s3]": "tests/integration/test_object_store.py",
    "python -m rl_cluster.on_ray": "deploy/ray/scenario.py",
    "ps-ctl promote": "tests/integration/test_split.py",
    "mkdir": "tests/integration/test_first_minutes.py",
    "python3.11 -m venv": "tests/test_makefile.py",
    "(while": "tests/integration/test_faults.py",
    "python -m benchmarks.load": "tests/integration/test_load.py",
    "python -m tests.mutants": "none: it takes the whole checkout, and minutes",
    "python -m examples.digits": "tests/integration/test_digits.py",
    "python -m examples.population": "tests/examples/test_population.py",
    "python -m examples.slow_simulators": "tests/examples/test_slow_simulators.py",
    "pip install pettingzoo": "tests/examples/test_self_play.py",
    "pip install optuna": "tests/examples/test_sweep.py",
    "node": "tests/examples/test_remote_simulator.py",
    "rl-cluster --preset cartpole --evaluate-every": "tests/integration/test_evaluation.py",
    "cc": "tests/examples/test_remote_simulator.py",
    "rl-cluster --environment examples.remote_simulator": "tests/examples/test_remote_simulator.py",
}
SKIPPED = {
    "pip": "the network", "curl": "the network", "ssh": "another machine", ".": "the shell's",
    "tensorboard": "a viewer", "hf": "an account",
}  # fmt: skip

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(400)]


def elsewhere(block: Block) -> str:
    """The test that runs this block; "" without one."""
    first = " ".join(commands_in(lines_of(block)[0])[0])
    return next((test for words, test in ELSEWHERE.items() if first.startswith(words)), "")


BLOCKS = [block for block in all_blocks("sh") if not elsewhere(block)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a short run that is over."""
    folder = tmp_path_factory.mktemp("finished")
    with programs_in(folder) as programs:
        flags = ("--workers", "1", "--max-steps", "5000", "--no-web", "--run-dir", str(folder / "run"))
        assert programs.start("rl-cluster", *CARTPOLE, *flags).wait(200) == 0
        yield folder / "run"


class Stage:
    """The folder and the servers of one block."""

    def __init__(self, programs: Programs, finished: Path) -> None:
        self._programs = programs
        self.folder = programs.folder
        for name in ("RUN_DIR", "runs/PRESET-DATE", "runs/first"):
            shutil.copytree(finished, self.folder / name)
        (self.folder / "examples").symlink_to(ROOT / "examples")  # as where the pages' commands are typed
        self._servers: dict[str, str] = {}
        self._serving: list[Program] = []
        self._primary: Program | None = None

    def run(self, command: Sequence[str]) -> None:
        """Run a command as its page has it, but for what is substituted. Raises AssertionError."""
        program, *arguments = command
        if program in SKIPPED:
            return
        if command[:3] == ["python", "-m", "ps_track"]:
            program, arguments = "ps_track", arguments[2:]
        if command[:2] == ["make", "train"]:
            program, arguments = "rl-cluster", ["--preset", "pong", "--no-web"]
        words = [program, *self._substituted(program, arguments)]
        started = self._programs.start(*words, folder=self.folder)
        serves = next((line for words_of_it, line in SERVES.items() if words_of_it <= set(words)), "")
        if serves:
            wait_for(lambda: serves in started.output, program=started, within_seconds=120)
            self._serving.append(started)
            if found := re.search(r"rl-worker --server (\S+)", started.output):
                self._servers["standby" if "--standby-of" in arguments else "primary"] = found[1].split(",")[-1]
        else:
            assert started.wait(200) == 0, started.output
        if program == "ps-server" and "--standby-of" not in arguments:
            self._primary = started
        seen = promise_of(words)
        assert seen is not None, f"{' '.join(words)}: say in promises.py what its reader gets"
        server = self._servers.get("standby" if "--standby-of" in arguments else "primary", "")
        seen(Sight(words, started, self.folder, server))

    def end(self) -> None:
        """End what serves, the latest first: in order, with a status that says so."""
        if "standby" in self._servers:
            self._see_a_takeover()
        for program in reversed(self._serving):
            if program is self._primary and "standby" in self._servers:
                continue  # it was killed
            if program.process.poll() is None and "the run is over" not in program.output:
                program.signal(signal.SIGTERM)
            assert program.wait() == 0, program.output

    def _see_a_takeover(self) -> None:
        """The primary dies; the block's worker goes on at the standby."""
        assert self._primary is not None, "a standby has a primary"
        primary, standby = self._servers["primary"], self._servers["standby"]
        wait_for(lambda: (one := status_of(primary).standby) and one.phase == "in sync", within_seconds=120)
        before = status_of(primary)
        self._primary.kill()
        wait_for(lambda: status_of(standby).phase == "serving", within_seconds=120)
        wait_for(lambda: status_of(standby).global_steps > before.global_steps, within_seconds=120)
        assert status_of(standby).run_id == before.run_id

    def _substituted(self, program: str, arguments: Sequence[str]) -> list[str]:
        words = [self._address(word) if ":5555" in word else word for word in arguments]
        if "RUN_DIR/endpoint" in words:
            (self.folder / "RUN_DIR/endpoint").write_text(f"{self._server('primary')}\n")
        words = ["until_return=499" if word == "until_return=20" else word for word in words]
        for at, word in enumerate(words[:-1]):
            if word in ("--port", "--web-port"):
                words[at + 1] = "0"
            elif word == "--preset":
                words[at + 1] = CARTPOLE[1]
            elif word in ("--curve-server-key", "--curve-secret") and not words[at + 1].startswith("keys/"):
                words[at + 1] = f"keys/{words[at + 1]}"  # the copies on another machine
        if program == "ps-server" and "--standby-of" not in words:
            words += ["--host", "127.0.0.1", *(() if "--preset" in words or "--resume" in words else CARTPOLE)]
        if program == "ps-server" and "--resume" in words:
            words += ["--max-steps", "1000000"]
        if program == "rl-cluster" and "--server" not in words:
            words += ["--workers", "1", "--max-steps", "8000" if "--resume" in words else "3000"]
        if program == "ps-web" and "--port" not in words:
            words += ["--port", "0"]
        return ["127.0.0.1" if word == "ib0" else word for word in words]

    def _address(self, word: str) -> str:
        """A:5555,B:5555: the primary, then its standby."""
        return ",".join(
            self._server("standby" if name.split(":")[0] in ("B", "OTHER") else "primary") for name in word.split(",")
        )

    def _server(self, name: str) -> str:
        if name not in self._servers:
            self._primary, address = self._programs.start_server(*CARTPOLE, "--until-return", "None")
            self._servers[name] = address
            worker = self._programs.start("rl-worker", "--server", address, folder=self.folder)
            wait_for(lambda: status_of(address).updates > 0, program=worker, within_seconds=120)
        return self._servers[name]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_of_commands_runs(
    block: Block, tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    with programs_in(tmp_path) as programs:
        stage = Stage(programs, finished)
        for line in lines_of(block):
            for command in commands_in(line):
                stage.run(command)
        stage.end()


@pytest.mark.parametrize("block", all_blocks("python"), ids=str)
def test_a_snippet_runs(block: Block, tmp_path: Path, finished: Path) -> None:
    """As a program of its own, in a folder with a finished run and, where it is named, a policy that was taken away."""
    with programs_in(tmp_path) as programs:
        folder = Stage(programs, finished).folder
        if "my-policy" in block.text:
            taken = ("--checkpoint", "RUN_DIR", "--export", "my-policy", "--episodes", "2", "--onnx")
            assert programs.start("rl-eval", *taken, folder=folder).wait(200) == 0
        text = block.text
        if '"127.0.0.1:5555"' in text:  # a client of a server without a run
            text = text.replace("127.0.0.1:5555", programs.start_server()[1])
        command = [sys.executable, "-c", text]
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr


def test_blocks_that_are_run_elsewhere_are_run_by_what_is_there() -> None:
    for test in ELSEWHERE.values():
        assert (ROOT / test).exists(), test
