"""The evaluator beside a run: when there is one, what it is asked for, and what becomes of the run when it dies."""

from pathlib import Path
from typing import Any, ClassVar

import pytest

from ps_common.program.supervision import MOST_DEATHS
from ps_common.settings.run_spec import Records, RunSpec
from rl_cluster import evaluator
from rl_cluster.evaluator import Evaluator


class Following:
    """A process that does nothing, and ends when the test says so."""

    begun: ClassVar[list["Following"]] = []
    age_seconds = 1.0
    reason = None
    log = None

    def __init__(self, program: str, arguments: list[str], log: Path) -> None:
        assert (program, log.name) == ("rl_eval", evaluator.LOG)
        self.arguments = arguments
        self.exit_status: int | None = None
        self.begun.append(self)

    @property
    def is_over(self) -> bool:
        return self.exit_status == 0

    def cause_of_death(self) -> str:
        return "it ran out of memory"

    def end(self, *, within_seconds: float) -> None:
        self.exit_status = 0


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[Following]:
    monkeypatch.setattr(evaluator, "Child", Following)
    monkeypatch.setattr(Following, "begun", [])
    monkeypatch.setattr("ps_common.program.supervision.BACKOFF_SECONDS", 0.0)
    return Following.begun


def run_with(**records: Any) -> RunSpec:
    return RunSpec(records=Records(**records))


def test_there_is_none_unless_the_run_asks_for_one(tmp_path: Path, begun: list[Following]) -> None:
    with Evaluator(tmp_path, RunSpec(), []) as quiet:
        assert quiet.look() == []
    assert begun == []
    with Evaluator(tmp_path, run_with(evaluate_every=100, evaluate_games=7), ["own"]) as one:
        assert one.look() == one.look() == []
    (child,) = begun
    assert child.arguments == ["--follow", str(tmp_path), "--episodes", "7", "--import", "own"]
    assert child.is_over, "it ends with the run"


def test_one_that_dies_is_started_again_and_never_ends_the_run(tmp_path: Path, begun: list[Following]) -> None:
    said: list[str] = []
    with Evaluator(tmp_path, run_with(evaluate_every=100), []) as one:
        one.look()
        for deaths in range(1, 6):
            begun[-1].exit_status = -9
            said += one.look()
            assert len(begun) == min(1 + deaths, MOST_DEATHS)
    assert len(said) == MOST_DEATHS
    assert "it ran out of memory; it is started again" in said[0]
    assert "the run continues without scores of evaluation" in said[-1]
