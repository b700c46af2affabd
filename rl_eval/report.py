"""
The words for a score: how it was played, its interval, how many games were distinct, and the baselines beside it.

`rl-eval` prints them, and a model card has them.
"""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from rl_eval.games import Baseline, Result


def print_result(result: Result) -> None:
    """Print the score, and a table with the baselines if they were measured."""
    print(
        f"{result.environment}: mean {result.mean:.2f}{_interval(result)}, std {result.std:.2f}, "
        f"of {result.episodes} full games, {actions_of(result)}{copies_in(result)}"
    )
    if not result.baselines:
        return
    table = Table("", "mean", "95 %", "games", "distinct", box=SIMPLE_HEAD, pad_edge=False)
    for name, row in scores_beside(result):
        table.add_row(name, f"{row.mean:.2f}", interval_of(row), str(row.episodes), str(row.distinct))
    Console(highlight=False).print(table)


def scores_beside(result: Result) -> list[tuple[str, Result | Baseline]]:
    """The policy and the baselines by name, the best first."""
    rows: list[tuple[str, Result | Baseline]] = [("this policy", result)]
    rows += [(baseline.name, baseline) for baseline in result.baselines]
    return sorted(rows, key=lambda row: row[1].mean, reverse=True)


def actions_of(result: Result) -> str:
    """How the policy chose its actions."""
    if result.greedy:
        return "greedy actions"
    return "sampled actions" if result.epsilon is None else f"ε-greedy actions (ε {result.epsilon:g})"


def copies_in(result: Result) -> str:
    """A clause on copies among the games; "" if there are none."""
    if result.distinct == result.episodes:
        return ""
    counted = "counts each once" if result.low is not None else "is left out"
    return f"; only {result.distinct} of them distinct, the others copies: the interval {counted}"


def interval_of(row: Result | Baseline) -> str:
    """The interval, or "–" without one."""
    return "–" if row.low is None or row.high is None else f"{row.low:.2f} to {row.high:.2f}"


def _interval(result: Result) -> str:
    return "" if result.low is None else f" (95 % {interval_of(result)})"
