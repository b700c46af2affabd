"""
Runs of rl-cluster and rl-eval, one after another, as a user would start them, and the numbers that they leave.

Each run has a folder of its own. The output of each program goes into a log beside it.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ps_common.errors import PsRlError, SettingsError
from ps_common.run_folder.paths import METRICS
from ps_common.run_folder.run_rows import MetricsRow, rows_in


def new_folder(given: Path | None, kind: str) -> Path:
    """The folder, or runs/KIND-DATE when none is given. Raises SettingsError where it exists."""
    folder = given or Path("runs") / f"{kind}-{time.strftime('%Y%m%d-%H%M%S')}"
    if folder.exists():
        raise SettingsError(f"--folder {folder}: exists already; name a new one")
    return folder


@dataclass(frozen=True)
class Trained:
    """A run that has ended."""

    folder: Path
    steps: int
    minutes: float  # of training
    start_minutes: float  # before these: from the start of the programs until the run had its first weights
    minutes_to_target: float | None
    steps_per_second: float
    mean_return_100: float | None


def train(folder: Path, flags: Sequence[str]) -> Trained:
    """A run to its end, in a new folder. Raises PsRlError, which names the log."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    log, result = (folder.with_name(f"{folder.name}.{kind}") for kind in ("log", "json"))
    began = time.time()
    _run("rl-cluster", [*flags, "--run-dir", str(folder), "--no-web", "--json", str(result)], log)
    summary = json.loads(result.read_text())
    first = next(row for row in rows_in(folder / METRICS, MetricsRow) if row.version)
    return Trained(
        folder=folder,
        steps=summary["global_steps"],
        minutes=summary["minutes"],
        start_minutes=(first.time - began) / 60 - first.minutes,
        minutes_to_target=summary["minutes_to_target"],
        steps_per_second=summary["steps_per_second"],
        mean_return_100=summary["mean_return_100"],
    )


def evaluate(checkpoint: Path, flags: Sequence[str], *, result: Path) -> dict[str, Any]:
    """The result of rl-eval for a checkpoint or run folder; it stays in the file `result`. Raises PsRlError."""
    _run(
        "rl-eval",
        ["--checkpoint", str(checkpoint), *flags, "--json", str(result)],
        result.with_suffix(".log"),
    )
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def _run(program: str, flags: Sequence[str], log: Path) -> None:
    command = [sys.executable, "-m", program.replace("-", "_"), *flags]
    with log.open("wb") as output:
        status = subprocess.run(command, stdout=output, stderr=output, check=False).returncode
    if status:
        last = (log.read_text(errors="replace").strip().splitlines() or [""])[-1]
        raise PsRlError(f"{program} {' '.join(flags)}: ended with status {status}: {last} (see {log})")
