"""A user's environment that ends the program, leaves threads behind, or prints after its error: a worker has left in
order only when it says so, every environment is closed, and each program ends.
"""

import re
from pathlib import Path

import pytest

from tests.integration.processes import Programs
from tests.rl_agent.custom_environments import line_with

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


def test_a_worker_that_ends_before_the_run_does_has_died_of_its_reason(programs: Programs, tmp_path: Path) -> None:
    why = "exit status 0, without a reason"
    (tmp_path / "own.py").write_text(
        line_with("self.t += 1", LATE.format(ends="import os; os._exit(0)")).replace(
            "    def step(self, action):", VIEWER.strip("\n")
        )
    )
    flags = ["--environment", "own:Line-v0", "--envs", "1", "--workers", "1", "--no-web", "--run-dir", "run"]
    soon = {"ps_common.program.supervision.BACKOFF_SECONDS": 0.1}
    cluster = programs.start("rl-cluster", *flags, folder=tmp_path, constants=soon)
    assert cluster.wait(120) == 1, cluster.output
    death = rf"worker-0 died: {why} \(its log: run/worker-0\.log\); it is started again"
    assert len(re.findall(death, cluster.output)) == 2, cluster.output
    assert re.search(rf"rl-cluster: worker-0 died 3 times in a row.*: {why}", cluster.output), cluster.output
    assert "Traceback" not in cluster.output


IN_A_RUN = "if __import__('os').path.exists('run'): "  # in the trial it would be refused


def test_every_environment_is_closed_and_programs_end_though_threads_are_left(
    programs: Programs, tmp_path: Path
) -> None:
    """Those of the trial and the worker; then of rl-eval and its recording."""
    then = f"{IN_A_RUN}raise OSError('gone already')"
    write_line(
        tmp_path,
        threads=("    def __init__(self, render_mode=None):\n", THREADS),
        close=("    def reset(self, *, seed=None, options=None):\n", CLOSES.format(then=then)),
    )
    flags = ["--environment", "own:Line-v0", "--envs", "2", "--workers", "1", "--no-web", "--run-dir", "run"]
    limits = ["--max-steps", "3000"]
    cluster = programs.start("rl-cluster", *flags, *limits, folder=tmp_path)
    assert cluster.wait(120) == 0, cluster.output
    evaluation = ["--checkpoint", "run", "--import", "own", "--episodes", "2", "--gif", "game.gif"]
    evaluated = programs.start("rl-eval", *evaluation, folder=tmp_path)
    assert evaluated.wait() == 0, evaluated.output
    notes = (tmp_path / "notes").read_text().splitlines()
    assert notes.count("made") == notes.count("closed") > 4, notes
    log = (tmp_path / "run" / "worker-0.log").read_text()
    assert log.count("rl-worker: ends though a thread, ") == 1, log
    assert "close() of the environment has failed: OSError: gone already (own.py, line" in log
