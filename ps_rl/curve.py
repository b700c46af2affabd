"""The learning curve of a run: arrays, and a picture."""

import io
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ps_common.run_folder.run_rows import MetricsRow, scored_rows


@dataclass(frozen=True)
class Curve:
    """The mean return of the last 100 games over steps and minutes of training: float64 arrays, all [N]."""

    steps: NDArray[np.float64]
    minutes: NDArray[np.float64]
    returns: NDArray[np.float64]

    @classmethod
    def of(cls, rows: Iterable[MetricsRow]) -> "Curve":
        """The curve of these rows."""
        points = [(row.global_steps, row.minutes, row.mean_return_100) for row in scored_rows(rows)]
        return cls(*np.array(points, np.float64).reshape(-1, 3).T)

    def __repr__(self) -> str:
        return (
            f"<Curve of {len(self.steps)} points{f', mean return {self.returns[-1]:.2f}' if len(self.steps) else ''}>"
        )

    def svg(self) -> str:
        """A picture of the curve; "" without games."""
        if not len(self.steps):
            return ""
        from matplotlib.figure import Figure  # takes a second; without pyplot, which would change a notebook's backend

        figure = Figure(figsize=(6, 2.5), layout="constrained")
        axes = figure.subplots()
        axes.plot(self.steps, self.returns)
        axes.set(xlabel="environment steps of all workers", ylabel="mean return of 100 games")
        axes.grid(alpha=0.3)
        text = io.StringIO()
        figure.savefig(text, format="svg")
        _, beginning, rest = text.getvalue().partition("<svg")  # without the head of a file
        return beginning + rest
