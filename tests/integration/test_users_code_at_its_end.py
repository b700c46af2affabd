"""A user's environment that ends the program, leaves threads behind, or prints after its error: a worker has left in
order only when it says so, every environment is closed, and each program ends.
"""

import re
from pathlib import Path

import pytest

from ps_rl import PsRlError, train
from tests.integration.processes import Programs, wait_for
from tests.rl_agent.custom_environments import line_with
from tests.rows import nightly

pytestmark = pytest.mark.timeout(300)

# Longer than any trial. At the end of the process Python prints what __del__ raises, after the traceback.
LATE = """
        self.t += 1
        self.all = getattr(self, "all", 0) + 1
        if self.all > 400:
            {ends}
"""
VIEWER = """
    def __del__(self):
        raise TypeError("the window is gone")

    def step(self, action):
"""
THREADS = """
    def __init__(self, render_mode=None):
        import threading
        self.over = threading.Event()
        threading.Thread(target=self.over.wait, name="helper").start()
        note("made")
"""
CLOSES = """
    def close(self):
        note("closed")
        {then}

    def reset(self, *, seed=None, options=None):
"""
NOTE = """
def note(what):
    with open("notes", "a") as file:
        file.write(what + "\\n")
"""


def write_line(folder: Path, **changes: str) -> None:
    """own.py: Line with each of these places changed."""
    source = line_with("import gymnasium, numpy\n", f"import gymnasium, numpy\n{NOTE}")
    for before, after in changes.values():
        assert before in source
        source = source.replace(before, after.lstrip("\n"))
    (folder / "own.py").write_text(source)


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        nightly("import sys; sys.exit()", r"sys\.exit\(\) was called \(own\.py, line \d+\)"),
        ("import os; os._exit(0)", "exit status 0, without a reason"),
        nightly("raise ValueError('the track is missing')", r"ValueError: the track is missing \(own\.py, line \d+\)"),
    ],
)
def test_a_worker_that_ends_before_the_run_does_has_died_of_its_reason(
    programs: Programs, tmp_path: Path, ends: str, why: str
) -> None:
    (tmp_path / "own.py").write_text(
        line_with("self.t += 1", LATE.format(ends=ends)).replace("    def step(self, action):", VIEWER.strip("\n"))
    )
    flags = ["--environment", "own:Line-v0", "--envs", "1", "--workers", "1", "--no-web", "--run-dir", "run"]
    cluster = programs.start("rl-cluster", *flags, folder=tmp_path)
    assert cluster.wait(120) == 1, cluster.output
    death = rf"worker-0 died: {why} \(its log: run/worker-0\.log\); it is started again"
    assert len(re.findall(death, cluster.output)) == 2, cluster.output
    assert re.search(rf"rl-cluster: worker-0 died 3 times in a row.*: {why}", cluster.output), cluster.output
    assert "Traceback" not in cluster.output


@pytest.mark.parametrize("status", [nightly(0), 3])
def test_an_environment_whose_close_ends_the_program_is_refused(
    programs: Programs, tmp_path: Path, status: int
) -> None:
    then = f"import sys; sys.exit({status})"
    write_line(tmp_path, close=("    def reset(self, *, seed=None, options=None):\n", CLOSES.format(then=then)))
    cluster = programs.start("rl-cluster", "--environment", "own:Line-v0", "--run-dir", "run", folder=tmp_path)
    assert cluster.wait() == 2
    sentence = rf"rl-cluster: --environment own:Line-v0: fails when it is tried: sys\.exit\({status}\) was called \(own"
    assert re.search(sentence, cluster.output), cluster.output
    assert "Traceback" not in cluster.output


IN_A_RUN = "if __import__('os').path.exists('run'): "  # in the trial it would be refused


@pytest.mark.parametrize(
    "then",
    [
        nightly("self.over.set()"),
        nightly("pass"),
        f"{IN_A_RUN}raise OSError('gone already')",
    ],
)
def test_every_environment_is_closed_and_programs_end_though_threads_are_left(
    programs: Programs, tmp_path: Path, then: str
) -> None:
    """Those of the trial, the worker and the GIFs; then of rl-eval and its recording."""
    write_line(
        tmp_path,
        threads=("    def __init__(self, render_mode=None):\n", THREADS),
        close=("    def reset(self, *, seed=None, options=None):\n", CLOSES.format(then=then)),
    )
    flags = ["--environment", "own:Line-v0", "--envs", "2", "--workers", "1", "--no-web", "--run-dir", "run"]
    limits = ["--max-steps", "3000", "--gif-every-episodes", "20"]
    cluster = programs.start("rl-cluster", *flags, *limits, folder=tmp_path)
    assert cluster.wait(120) == 0, cluster.output
    assert list((tmp_path / "run" / "gifs").glob("*.gif"))
    evaluation = ["--checkpoint", "run", "--import", "own", "--episodes", "2", "--gif", "game.gif"]
    evaluated = programs.start("rl-eval", *evaluation, folder=tmp_path)
    assert evaluated.wait() == 0, evaluated.output
    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes.count("made") == notes.count("closed") > 6, notes
    log = (tmp_path / "run" / "worker-0.log").read_text()
    are_left = then != "self.over.set()"
    assert log.count("rl-worker: ends though threads still run: 2 (helper, helper)") == are_left, log
    assert ("close() of the environment has failed: OSError: gone already (own.py, line" in log) == ("raise" in then), (
        log
    )


@pytest.mark.nightly
def test_a_close_that_never_returns_ends_with_its_worker(programs: Programs, tmp_path: Path) -> None:
    """The server is told nothing of it: the worker has left."""
    then = f"{IN_A_RUN}__import__('threading').Event().wait()"
    write_line(tmp_path, close=("    def reset(self, *, seed=None, options=None):\n", CLOSES.format(then=then)))
    flags = ["--environment", "own:Line-v0", "--envs", "1", "--workers", "1", "--no-web", "--run-dir", "run"]
    cluster = programs.start("rl-cluster", *flags, "--max-steps", "2000", folder=tmp_path)
    assert cluster.wait(120) == 0, cluster.output
    assert "died" not in cluster.output


def test_train_raises_the_reason_however_often_it_is_tried(tmp_path: Path) -> None:
    (tmp_path / "run.toml").touch()
    for _ in range(3):
        with pytest.raises(PsRlError, match=rf"^--run-dir {tmp_path}: holds a run already"):
            train("cartpole", workers=1, run_dir=tmp_path)


@pytest.mark.nightly
def test_a_run_that_fails_later_raises_the_reason_of_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(line_with("self.t += 1", LATE.format(ends="raise ValueError('no track')")))
    monkeypatch.chdir(tmp_path)
    with (
        train(environment="own:Line-v0", envs=1, workers=1, run_dir=tmp_path / "run") as run,
        pytest.raises(
            PsRlError, match=r"^worker-0 died 3 times in a row, .*: ValueError: no track \(own\.py, line 27\)"
        ),
    ):
        run.wait(120)
    wait_for(lambda: not run.is_live)
