"""The result of a load test: what the processes report together, and the text that a person reads. Pure."""

from collections import Counter
from collections.abc import Sequence

import msgspec

from common.protocol.status import Status
from rl_worker.load.histogram import Histogram, jains_index, joined, middle_of, percentile
from rl_worker.load.workload import Joined, Pushed

PERCENTS = (50.0, 99.0, 100.0)


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of many events; None where there was none."""

    p50: float | None
    p99: float | None
    longest: float | None


class ServerMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Resident bytes of the server's process; 0 where it does not say."""

    before: int
    joined: int  # all workers have weights, and nobody pushes
    pushing: int  # the most that was seen
    after: int  # the workers have left
    peak: int  # since the server started
    most_growth: int  # from `before` on, by the formula of docs/GUARANTEES.md


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """One load test."""

    server: str
    run_id: str
    workers: int
    processes: int
    parameters: int
    gradient_codec: str
    weight_codec: str
    compute_seconds: float
    joined: int
    joins_per_second: float
    join_seconds: Times  # from connecting to WELCOME
    ready_seconds: Times  # from connecting to the first weights
    seconds: float  # of pushing
    pushes: int  # applied
    pushes_per_second: float
    bytes_per_second: float  # of vectors, both ways
    round_trip_seconds: Times
    staleness_mean: float  # versions
    staleness_p99: float
    fairness: float  # Jain's index of the workers' applied pushes
    discarded: int
    lost: int  # workers that gave up while they pushed
    refused: dict[str, int]  # replies by code
    reasons: dict[str, str]  # a sentence for each code
    memory: ServerMemory

    @property
    def failure(self) -> str:
        """The failure, in one sentence; "" if every worker joined, and none was refused or lost."""
        because = "".join(f"; {code or 'error'}: {reason}" for code, reason in self.reasons.items())
        if self.joined < self.workers:
            return f"{self.workers - self.joined} of {self.workers} workers did not join{because}"
        if self.lost:
            return f"{self.lost} of {self.workers} workers lost the server{because}"
        if self.refused or self.discarded:
            return f"{sum(self.refused.values()) + self.discarded} requests were refused{because}"
        return ""


def times_of(histogram: Histogram) -> Times:
    """Percentiles of seconds."""
    buckets = [percentile(histogram, percent) for percent in PERCENTS]
    p50, p99, longest = (None if bucket is None else middle_of(bucket) for bucket in buckets)
    return Times(p50=p50, p99=p99, longest=longest)


def joining_of(reports: Sequence[Joined]) -> dict[str, object]:
    """The fields of the result that describe how the workers joined."""
    ready = joined(one.ready_seconds for one in reports)
    count = sum(ready.values())
    took = max(one.ended for one in reports) - min(one.began for one in reports)
    return {
        "joined": count,
        "joins_per_second": count / took if took > 0 else 0.0,
        "join_seconds": times_of(joined(one.join_seconds for one in reports)),
        "ready_seconds": times_of(ready),
    }


def pushing_of(reports: Sequence[Pushed], *, vector_bytes: int) -> dict[str, object]:
    """The fields of the result that describe how they pushed. `vector_bytes`: of a gradient and weights."""
    rate = sum(sum(one.settled) / one.seconds for one in reports)
    versions = joined(one.staleness for one in reports)
    total = sum(versions.values())
    return {
        "seconds": max(one.seconds for one in reports),
        "pushes": sum(sum(one.settled) for one in reports),
        "pushes_per_second": rate,
        "bytes_per_second": rate * vector_bytes,
        "round_trip_seconds": times_of(joined(one.round_trip_seconds for one in reports)),
        "staleness_mean": sum(late * count for late, count in versions.items()) / max(1, total),
        "staleness_p99": float(percentile(versions, 99) or 0),
        "fairness": jains_index([count for one in reports for count in one.settled]),
        "discarded": sum(one.discarded for one in reports),
        "lost": sum(one.lost for one in reports),
    }


def refusals_of(joins: Sequence[Joined], pushes: Sequence[Pushed]) -> dict[str, object]:
    """The fields of the result that count refusals."""
    refused: Counter[str] = Counter()
    reasons: dict[str, str] = {}
    for counts, sentences in [(one.refused, one.reasons) for one in joins] + [(p.refused, p.reasons) for p in pushes]:
        refused.update(counts)
        reasons |= sentences
    return {"refused": dict(refused), "reasons": reasons}


def memory_of(
    before: Status, joined: Status, pushing: Sequence[Status], after: Status, *, most_growth: int
) -> ServerMemory:
    """The server's memory by the statuses that it has sent."""
    return ServerMemory(
        before=before.memory_bytes,
        joined=joined.memory_bytes,
        pushing=max((one.memory_bytes for one in pushing), default=joined.memory_bytes),
        after=after.memory_bytes,
        peak=after.memory_peak_bytes,
        most_growth=most_growth,
    )


def as_text(result: LoadResult) -> str:
    """The result for a person."""
    memory = result.memory
    megabytes = [f"{size / 2**20:,.0f}" for size in (memory.before, memory.joined, memory.pushing, memory.after)]
    each = (memory.joined - memory.before) / max(1, result.joined) / 1024
    refused = ", ".join(f"{code} {count}" for code, count in result.refused.items()) or "none"
    return "\n".join(
        [
            f"{result.workers} workers in {result.processes} processes at {result.server}, run {result.run_id}: "
            f"{result.parameters:,} parameters, gradients {result.gradient_codec}, weights {result.weight_codec}",
            f"joined          {result.joined} of {result.workers}, {result.joins_per_second:,.0f} a second",
            f"  WELCOME       {_text_of(result.join_seconds)}",
            f"  first weights {_text_of(result.ready_seconds)}",
            f"pushes          {result.pushes_per_second:,.0f} a second, {result.pushes:,} in {result.seconds:.1f} s; "
            f"vectors {result.bytes_per_second / 1e6:,.0f} MB/s",
            f"  round trip    {_text_of(result.round_trip_seconds)}",
            f"  staleness     {result.staleness_mean:.1f} versions, p99 {result.staleness_p99:.0f}",
            f"  fairness      {result.fairness:.4f} (Jain's index; 1 is equal shares)",
            f"refused         {refused}; discarded {result.discarded}",
            f"server memory   {megabytes[0]} MiB before, {megabytes[1]} joined ({each:,.0f} KiB a worker), "
            f"{megabytes[2]} while they pushed (by the formula at most "
            f"{(memory.before + memory.most_growth) / 2**20:,.0f}), {megabytes[3]} after",
        ]
    )


def _text_of(times: Times) -> str:
    if times.p50 is None or times.p99 is None or times.longest is None:
        return "none"
    return f"p50 {_seconds(times.p50)}   p99 {_seconds(times.p99)}   longest {_seconds(times.longest)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
