"""
Scores by separate games while a run learns: rl-eval follows the run, beside it, and reports to its server.

An evaluator that dies is started again. One that dies again and again is given up, which is reported; the run goes on.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Self

from ps_common.errors import PsRlError
from ps_common.program.child_processes import Child
from ps_common.program.supervision import SupervisedProcess
from ps_common.settings.run_spec import RunSpec

LOG = "evaluation.log"
LEAVE_SECONDS = 1.0  # for the evaluator to leave


class Evaluator:
    """The evaluator of the run in `run_folder`, while a block runs; none where its settings ask for none."""

    def __init__(self, run_folder: Path, run: RunSpec, modules: Sequence[str]) -> None:
        """`modules` are those that rl-eval may import."""
        flags = ["--follow", str(run_folder), "--episodes", str(run.records.evaluate_games)]
        flags += ["--greedy"] if run.records.evaluate_greedy else []
        flags += ["--import", *modules] if modules else []
        self._start = partial(Child, "rl_eval", flags, run_folder / LOG)
        self._is_wanted = run.records.evaluate_every > 0
        self._process: SupervisedProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.child.end(within_seconds=LEAVE_SECONDS)

    def look(self) -> list[str]:
        """Start the evaluator if it is not there. Returns a line on each death of it."""
        if not self._is_wanted:
            return []
        try:
            if self._process is None:
                self._process = SupervisedProcess("the evaluator", self._start)
            return list(filter(None, [self._process.look()]))
        except PsRlError as error:
            self._is_wanted = False
            return [f"{error}; the run continues without scores of evaluation, and only those end it at --until-return"]
