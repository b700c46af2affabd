"""The output of rl-cluster when a run has ended."""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ps_common.protocol.lineage import WHOLE, Shard
from ps_common.protocol.status import how_it_ended
from ps_common.run_folder.commands import what_next
from tests.ps_common.program.test_progress_display import status
from tests.rows import row


def ended(**changes: Any) -> str:
    facts = {"global_steps": 448_512, "minutes": 5.0, "best_mean_return_100": 18.2, "until_return": 18.0}
    return how_it_ended(status(**facts | changes))


def test_a_run_has_reached_its_target_or_failed_or_is_over_for_a_reason() -> None:
    for changes, sentence in [
        (
            {"minutes_to_target": 4.8, "ending": "mean return of the last 100 episodes reached 18"},
            "reached 18 in training after 4.8 minutes and 448,512 steps, as the mean return of the last 100 games",
        ),
        (
            {"ending": "worker-0 died 3 times in a row: ValueError: boom", "failed": True},
            "failed after 5.0 minutes and 448,512 steps: worker-0 died 3 times in a row: ValueError: boom",
        ),
        (
            {"best_mean_return_100": 12.3, "ending": "max_minutes 5 reached"},
            "over after 5.0 minutes and 448,512 steps (max_minutes 5 reached): "
            "the best mean return of 100 games was 12.30, the target 18",
        ),
        (
            {"until_return": None, "ending": "max_steps 448512 reached"},
            "over after 5.0 minutes and 448,512 steps (max_steps 448512 reached): "
            "the best mean return of 100 games was 18.20",
        ),
        (
            {"best_mean_return_100": None, "until_return": None, "ending": "rl-cluster was interrupted"},
            "over after 5.0 minutes and 448,512 steps (rl-cluster was interrupted): there were no 100 games yet",
        ),
        (
            {"ending": ""},
            "over after 5.0 minutes and 448,512 steps (the server ended): "
            "the best mean return of 100 games was 18.20, the target 18",
        ),
    ]:
        with row(changes, sentence):
            assert ended(**changes) == sentence


def test_what_to_type_next_can_be_typed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs that are not on the search path are named as rl-cluster was."""
    for program in ("rl-cluster", "rl-eval", "ps-ctl"):
        (tmp_path / program).touch(mode=0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "rl-cluster")])
    lines = what_next(status(checkpoint_version=7, minutes_to_target=None), Path("my runs/x"), modules=())
    typed = [shlex.split(line) for line in lines if not line.startswith("#")]
    assert typed == [
        [str(tmp_path / "rl-eval"), "--checkpoint", "my runs/x"],
        [str(tmp_path / "rl-eval"), "--checkpoint", "my runs/x", "--episodes", "1", "--gif", "my runs/x/game.gif"],
        [str(tmp_path / "rl-cluster"), "--resume", "my runs/x"],
        [str(tmp_path / "ps-ctl"), "plot", "my runs/x", "OTHER_RUN_DIR"],
    ]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert what_next(status(checkpoint_version=7), Path("x"), modules=())[1] == "rl-eval --checkpoint x"


def test_a_run_of_shards_is_resumed_by_no_command_for_one_server() -> None:
    of_two = Shard(number=1, addresses=("a:1", "b:1"))
    whole, cut = (
        what_next(status(checkpoint_version=7, shard=shard), Path("x"), modules=()) for shard in (WHOLE, of_two)
    )
    assert any("--resume" in line for line in whole)
    assert not any("--resume" in line for line in cut)
    assert "its newest weights" in cut[0]


def test_the_command_to_resume_doubles_the_limits_that_the_run_has_reached() -> None:
    for facts, flags in [
        ({"max_steps": 9000, "global_steps": 9088, "max_minutes": 15.0, "minutes": 0.2}, " --max-steps 18176"),
        ({"max_episodes": 300, "episodes": 301, "max_minutes": 15.0, "minutes": 0.2}, " --max-episodes 602"),
        ({"max_steps": 9000, "global_steps": 600, "max_minutes": 15.0, "minutes": 15.004}, " --max-minutes 31"),
        (
            {"max_steps": 9000, "global_steps": 9000, "max_minutes": 0.1, "minutes": 0.2},
            " --max-steps 18000 --max-minutes 1",
        ),
        ({"max_steps": 9000, "global_steps": 600, "max_minutes": 15.0, "minutes": 1.0}, ""),
        ({"global_steps": 600, "minutes": 100.0}, ""),
    ]:
        with row(facts, flags):
            lines = what_next(status(checkpoint_version=7, **facts), Path("x"), modules=())
            assert f"rl-cluster --resume x{flags}" in [line.rpartition("/")[2] for line in lines if "--resume" in line]
