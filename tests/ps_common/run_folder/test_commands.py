"""The command that began a run."""

import sys
from pathlib import Path

import pytest

from ps_common.run_folder.commands import command_of_run, keep_command


def test_the_first_command_of_a_run_is_kept_as_it_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command_of_run(tmp_path) == ""
    for seed in ("1", "2"):
        monkeypatch.setattr(sys, "argv", ["/somewhere/rl-cluster", "--seed", seed, "--run-dir", "my runs"])
        keep_command(tmp_path, "rl-cluster")
    assert command_of_run(tmp_path) == "rl-cluster --seed 1 --run-dir 'my runs'"
