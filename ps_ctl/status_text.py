"""The status of a run as text: what ps-ctl status prints."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ps_common.protocol.messages import Event
from ps_common.protocol.status import Adjustment, Status, speed_of
from ps_common.settings.kinds import text_of

MOST_ADJUSTMENTS = 5  # of the history, the newest
PIPE_WIDTH = 200  # characters; enough for the longest worker id, which a terminal may cut off


def print_status(status: Status, *, start_from: str) -> None:
    """Print it, for a terminal or a pipe. `start_from`: where the run has its first weights from, or ""."""
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    text = _text_of(status)
    if start_from:
        text.append(f"\nstarted from {start_from}", style="not bold")
    console.print(text)
    console.print(_workers_of(status))


def _text_of(status: Status) -> Text:
    """The run in words. Text, not markup: the names of workers and presets come from peers."""
    scores = (status.mean_return_100, status.best_mean_return_100, status.until_return)
    memory, peak = (f"{size / 2**20:.0f} MiB" for size in (status.memory_bytes, status.memory_peak_bytes))
    returns, best, target = ("-" if score is None else f"{score:.2f}" for score in scores)
    evaluated = ""
    if status.evaluation is not None and status.best_evaluation is not None:
        evaluated = f"evaluation {status.evaluation:.2f}   best evaluation {status.best_evaluation:.2f}\n"
    text = Text(status.preset or "undecided", style="bold")
    phase = "failed" if status.failed else "drained" if status.drained else "paused" if status.paused else status.phase
    text.append(
        f"{status.environment and ' on '}{status.environment} is {phase}, version {status.version}, "
        f"{status.parameters} parameters, {status.minutes:.1f} minutes\n"
        f"T {status.global_steps}   {status.steps_per_second:.0f} steps/s   "
        f"{status.updates_per_second:.1f} updates/s   learning rate {status.learning_rate:.3g}\n"
        f"{status.episodes} episodes   mean return of the last 100: {returns}   best: {best}   target: {target}\n"
        f"{evaluated}"
        f"staleness {status.staleness_recent:.2f} now, {status.staleness_mean:.2f} over the run   "
        f"gradient norm {status.gradient_norm:.3g}\n"
        f"server memory {memory}, so far at most {peak}   {status.connections} connections\n"
        f"ps-rl {status.release or '-'}\n"
        f"run {status.run_id or '-'}   checkpoint at version {status.checkpoint_version}, "
        f"{status.checkpoint_failures} failed   duplicates {status.duplicates}   refused {dict(status.refused) or 0}",
        style="not bold",
    )
    if status.ending:
        text.append(f"\nthe run is over: {status.ending}", style="not bold")
    if status.checkpoint_error:
        text.append(f"\nthe newest checkpoint failed: {status.checkpoint_error}", style="not bold")
    if (standby := status.standby) is not None:
        text.append(
            f"\nstandby {standby.address} is {standby.phase}, {standby.lag_updates} updates "
            f"({standby.lag_bytes / 2**20:.1f} MiB, {standby.lag_seconds:.1f} s) behind; "
            f"dropped {standby.drops} times; ps-rl {standby.release or '-'}",
            style="not bold",
        )
    for one in status.adjustments[-MOST_ADJUSTMENTS:]:
        text.append(f"\n{one.setting} {change_in(one)}, by {one.by}", style="not bold")
    return text


def _workers_of(status: Status) -> Table:
    columns = ("worker", "no.", "envs", "alive", "silent s", "pushes", "refused", "steps", "stale", "steps/s", "ps-rl")
    table = Table(*columns, box=SIMPLE_HEAD)
    for worker in status.workers:
        table.add_row(
            Text(worker.worker_id),
            str(worker.number),
            str(worker.environments),
            "stalled" if worker.stalled else "yes" if worker.alive else "no",
            f"{worker.silent_seconds:.1f}",
            str(worker.pushes),
            str(sum(worker.refused.values())),
            str(worker.steps),
            f"{worker.staleness:.2f}",
            f"{speed_of(worker):.0f}",
            worker.release or "-",
        )
    return table


def line_of(event: Event) -> str:
    """One event as a line."""
    return f"{event.minutes:8.1f} min  T {event.global_steps:<11,d} {event.kind:<10}  {event.text}"


def change_in(adjustment: Adjustment) -> str:
    """One adjustment: the setting, its values, and the step from which it holds."""
    return f"{text_of(adjustment.before)} -> {text_of(adjustment.after)}, from T {adjustment.global_steps} on"
