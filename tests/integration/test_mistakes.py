"""A user's mistake is told in one sentence, with a status that is not 0, and never with a traceback."""

from pathlib import Path

import pytest

from tests.integration.processes import Program, Programs
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
    ("ps-server", ["--unroll-length", "0"], ["--unroll-length"]),
    ("ps-server", ["--curve-secret", "nowhere"], ["--curve-secret", "--authorized-keys", "ps-ctl keygen"]),
    ("rl-worker", [], ["--server"]),
    ("ps-ctl", ["keygen", "{tmp}", "--name", "a"], ["without --name first"]),
    ("rl-worker", ["--server", "127.0.0.1:9", "--patience-minutes", "0.02"], ["no reply"]),
    ("rl-worker", ["--server", "127.0.0.1:9", "--device", "cuda"], ["--device cuda"]),
    ("rl-cluster", ["--environment", "ALE/Pnog-v5", "--run-dir", "{tmp}/b"], ["ALE/Pnog-v5"]),
    ("rl-eval", [], ["--checkpoint", "--server"]),
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
