"""What `make scale` leaves: a table in Markdown and a picture."""

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt

from benchmarks.scale.trials import CPU, GANG, GPU, Row, best_of

HEAD = ("way", "workers", "environments of each", "steps/s", "updates/s", "staleness", "server's share of a core")


def table(rows: Sequence[Row], *, title: str) -> str:
    """Markdown: a row for each trial; the best is bold."""
    best = best_of(rows)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    lines = [title, "", f"*{time.strftime('%Y-%m-%d')} · {machine}*", ""]
    lines += [f"| {' | '.join(HEAD)} | seconds to start |", f"|{'---|' * (len(HEAD) + 1)}"]
    for row in rows:
        cells = [
            row.trial.way,
            str(row.trial.workers),
            str(row.trial.envs),
            f"{row.steps_per_second:,.0f}",
            f"{row.updates_per_second:,.0f}",
            f"{row.staleness:.1f}",
            f"{row.server_share:.2f}",
            f"{row.start_seconds:.1f}",
        ]
        lines.append(f"| {' | '.join(f'**{cell}**' if row is best else cell for cell in cells)} |")
    return "\n".join(lines) + "\n"


def picture(rows: Sequence[Row], path: Path, *, envs: int) -> None:
    """Steps/s by workers, with the line of the smallest number times workers; by environments;
    the server's share; staleness."""
    workers = sorted((row for row in rows if row.trial.way == CPU and row.trial.envs == envs), key=_workers)
    best = max(workers, key=lambda row: row.steps_per_second)
    environments = {
        f"CPU, workers: {_workers(best)}": [
            row for row in rows if (row.trial.way, _workers(row)) == (CPU, _workers(best))
        ],
        "GPU, workers: 1": [row for row in rows if row.trial.way == GPU],
    }
    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    speed, games, server, stale = axes.flat
    counts = [_workers(row) for row in workers]
    each = workers[0].steps_per_second / counts[0]
    speed.plot(counts, [row.steps_per_second for row in workers], "o-", label=f"{envs} environments each")
    speed.plot(counts, [each * count for count in counts], "--", color="gray", label="as many times as workers")
    if gangs := [row for row in rows if row.trial.way == GANG and row.trial.envs == envs]:
        speed.plot([_workers(row) for row in gangs], [row.steps_per_second for row in gangs], "s", label="a gang")
    speed.set(xlabel="workers", ylabel="environment steps/s")
    for label, found in environments.items():
        if found:
            found = sorted(found, key=lambda row: row.trial.envs)
            games.plot([row.trial.envs for row in found], [row.steps_per_second for row in found], "o-", label=label)
    games.set(xlabel="environments of a worker", ylabel="environment steps/s")
    server.plot(counts, [row.server_share for row in workers], "o-")
    server.set(xlabel="workers", ylabel="server's share of a core")
    stale.plot(counts, [row.staleness for row in workers], "o-")
    stale.set(xlabel="workers", ylabel="staleness, versions")
    for part in (speed, games):
        part.legend()
    for part in axes.flat:
        part.set_ylim(0, None)
        part.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _workers(row: Row) -> int:
    return row.trial.workers
