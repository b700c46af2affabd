"""The rows of a run folder's files and the metrics for Prometheus, as tables."""

import inspect

import msgspec

from docs.extension.attributes import attributes_of, default_in_words, plain, table, values_of
from ps_common.protocol.status import StandbyStatus, WorkerStatus
from ps_common.run_folder.run_rows import EpisodeRow, EvaluationRow, EventRow, MetricsRow
from ps_web.prometheus import COUNTERS, GAUGES, STALENESS

FIELDS = ("field", "type", "default", "meaning")
# The structs of a file's rows, one above the other, and fields that the rows leave out.
FILES: dict[str, tuple[type, ...]] = {
    "metrics.jsonl": (MetricsRow, StandbyStatus),
    "workers.jsonl": (WorkerStatus,),
    "episodes.jsonl": (EpisodeRow,),
    "evaluations.jsonl": (EvaluationRow,),
    "events.jsonl": (EventRow,),
}
LEFT_OUT = {MetricsRow: {"workers", "adjustments", "shard"}}
ALSO = {"workers.jsonl": "Each row also has `time`, `minutes` and `global_steps`, as in `metrics.jsonl`.\n\n"}


def fields(kind: type[msgspec.Struct]) -> str:
    """The table of a struct's fields."""
    rows = [
        (f"`{found.name}`", values_of(found), default_in_words(found.default), plain(found.text))
        for found in attributes_of(kind)
        if found.name not in LEFT_OUT.get(kind, ())
    ]
    return table(FIELDS, rows)


def rows() -> str:
    """A section for each file of rows, with the fields of one row."""
    text = ""
    for name, kinds in FILES.items():
        text += f"## {name}\n\n{ALSO.get(name, '')}"
        for kind in kinds:
            heading = f"### {kind.__name__}\n\n" if len(kinds) > 1 else ""
            text += f"{heading}{plain(inspect.getdoc(kind) or '')}\n\n{fields(kind)}\n"
    return text


def metrics() -> str:
    """A table of every metric."""
    found = [(f"`{name}`", "gauge", text) for name, (text, _) in GAUGES.items()]
    found += [(f"`{name}_total`", "counter", text) for name, (text, _) in COUNTERS.items()]
    found.append(("`ps_rl_refused_total`", "counter", "Messages refused; the label `code` says why."))
    found.append((f"`{STALENESS}`", "gauge histogram", "Staleness of the pushes that were applied, in updates."))
    return table(("metric", "kind", "meaning"), sorted(found))
