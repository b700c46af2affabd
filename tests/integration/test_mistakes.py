"""A user's mistake is told in one sentence, with a status that is not 0, and never with a traceback."""

import subprocess
import sys
from pathlib import Path

import pytest

from ps_common.settings.run_files import load_preset
from tests.integration.processes import Program, Programs, wait_for
from tests.rows import nightly


def says(program: Program, *words: str) -> None:
    """The program fails with one clear sentence that has these words in it."""
    status = program.wait()
    assert status not in (0, -6, -11), program.output
    assert "Traceback" not in program.output, program.output
    for word in words:
        assert word in program.output, program.output


MISTAKES = [
    ("ps-server", ["--preset", "pnog"], ["--preset pnog", "pong"]),
    ("ps-server", ["--unroll-lenth", "3"], ["--unroll-length"]),
    ("ps-server", ["--unroll-length", "0"], ["--unroll-length"]),
    ("ps-server", ["--optimizer", "adamw"], ["--optimizer adamw", "adam"]),
    ("ps-server", ["--config", "nowhere.toml"], ["--config nowhere.toml"]),
    ("ps-server", ["--resume", "nowhere"], ["--resume nowhere"]),
    ("ps-server", ["--port", "70000"], ["--port 70000"]),
    ("ps-server", ["--host", "203.0.113.1", "--port", "0", "--run-dir", "{tmp}/a"], ["--host 203.0.113.1"]),
    ("ps-server", ["--curve-secret", "nowhere"], ["--curve-secret", "--authorized-keys", "ps-ctl keygen"]),
    ("rl-worker", [], ["--server"]),
    ("rl-worker", ["--server", "127.0.0.1:9", "--curve-secret", "x"], ["--curve-secret", "--curve-server-key"]),
    ("ps-ctl", ["keygen", "{tmp}", "--name", "a/b"], ["--name a/b"]),
    ("ps-ctl", ["keygen", "{tmp}", "--name", "a"], ["without --name first"]),
    ("rl-worker", ["--server", "here"], ["--server here", "HOST:PORT"]),
    ("rl-worker", ["--server", "127.0.0.1:9", "--patience-minutes", "0.02"], ["no reply"]),
    ("rl-worker", ["--server", "127.0.0.1:9", "--device", "cuda"], ["--device cuda"]),
    ("rl-cluster", ["--workers", "0"], ["--workers 0"]),
    ("rl-cluster", ["--server", "127.0.0.1:9", "--name", "n" * 81], ["--name", "1 to 80"]),
    ("rl-cluster", ["--environment", "ALE/Pnog-v5", "--run-dir", "{tmp}/b"], ["ALE/Pnog-v5"]),
    ("rl-eval", [], ["--checkpoint", "--server"]),
    ("rl-eval", ["--checkpoint", "nowhere"], ["nowhere"]),
    ("ps-ctl", ["status", "--server", "there"], ["--server there"]),
    ("ps-ctl", ["plot", "nowhere"], ["nowhere"]),
]


@pytest.mark.parametrize(("module", "flags", "words"), MISTAKES, ids=str)
def test_a_mistake_is_told_in_a_sentence(
    programs: Programs, tmp_path: Path, module: str, flags: list[str], words: list[str]
) -> None:
    if "cuda" in flags:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("there is a GPU here")
    says(programs.start(module, *(flag.format(tmp=tmp_path) for flag in flags)), *words)


@pytest.mark.parametrize(
    "flags",
    [
        ["--environment", "ALE/Pnog-v5"],
        nightly(["--preset", "cartpole", "--actions", "0", "7"]),
        nightly(["--environment", "Pendulum-v1", "--algorithm", "n_step_q"]),
        ["--preset", "cartpole", "--host", "203.0.113.1"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_trained_leaves_no_folder_behind(programs: Programs, tmp_path: Path, flags: list[str]) -> None:
    here = tmp_path / "here"
    here.mkdir()
    says(programs.start("rl-cluster", *flags, folder=here), flags[-1])
    assert list(here.iterdir()) == []


def test_a_taken_port_is_told(programs: Programs, tmp_path: Path) -> None:
    _, endpoint = programs.start_server()
    port = endpoint.rpartition(":")[2]
    second = programs.start("ps-server", "--host", "127.0.0.1", "--port", port, "--run-dir", str(tmp_path / "other"))
    says(second, f"--port {port}")


@pytest.mark.parametrize(
    "flags", ["--preset pong", *(nightly(flags) for flags in ("--hidden 16", "--algorithm n_step_q", "--seed 3"))]
)
def test_a_cluster_is_not_resumed_with_what_its_run_was_not_begun_with(
    programs: Programs, tmp_path: Path, flags: str
) -> None:
    (tmp_path / "run.toml").write_text(load_preset("cartpole").to_toml())
    says(programs.start("rl-cluster", "--resume", str(tmp_path), *flags.split()), f"{flags}: a resumed run keeps")


def test_a_worker_whose_flags_contradict_the_run_is_told_which_flag(programs: Programs) -> None:
    server, endpoint = programs.start_server("--preset", "cartpole")
    says(programs.start("rl-worker", "--server", endpoint, "--discount", "0.5"), "--discount 0.5", "0.98")
    says(programs.start("rl-worker", "--server", endpoint, "--preset", "pong"), "--preset pong", "cartpole")
    assert server.process.poll() is None


def test_damaged_checkpoints_are_told_and_an_older_sound_one_is_used(programs: Programs, tmp_path: Path) -> None:
    server, endpoint = programs.start_server("--preset", "cartpole", "--checkpoint-seconds", "0.3")
    programs.start("rl-worker", "--server", endpoint)
    folder = tmp_path / "run" / "checkpoints"
    wait_for(lambda: len(list(folder.glob("checkpoint-*.safetensors"))) >= 3, program=server)
    server.kill()
    newest = sorted(folder.glob("checkpoint-*.safetensors"))[-1]
    content = bytearray(newest.read_bytes())
    content[-5] ^= 1
    newest.write_bytes(content)
    again, _ = programs.start_server("--resume", str(tmp_path / "run"))
    assert f"{newest}: is damaged" in again.output
    assert "resumed" in again.output
    again.kill()
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:100])
    says(programs.start("ps-server", "--resume", str(tmp_path / "run"), "--port", "0"), "none of its")
    evaluation = programs.start("rl-eval", "--checkpoint", str(folder / newest.name))
    says(evaluation, newest.name)


def test_flags_are_read_before_torch_is_imported() -> None:
    """torch takes more than a second, for which nobody should have to wait for --help."""
    asked = "import ps_server.cli, ps_ctl.cli, rl_worker.cli, rl_cluster.cli, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", asked], check=False, timeout=60).returncode == 0
