"""
The result of a load test: what the processes report together, and the text that a person reads. Pure.

Histograms have numbers by bucket: bounded memory, and percentiles that are right to two percent.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from ps_bench.processes import Report
from ps_common.protocol.status import Status

SMALLEST = 1e-6  # a microsecond; smaller numbers count as this
GROWTH = 1.02  # from one bucket to the next
K = TypeVar("K", bound=Hashable)

# Bytes of the formula in docs/GUARANTEES.md, by which the memory of a server may grow because of its workers. For each
# it keeps its account and its member, and ZeroMQ two queues of its connection. A worker of ps-bench has one push in
# flight: its gradient may be on the way in, and weights on the way out.
FIRST_BYTES = 16 * 2**20  # of the first push, whoever sends it: code that has not run before, and its buffers
WORKER_BYTES = 100 * 1024  # measured: 34 to 75 KiB, with 100 to 1,000 workers


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


def bucket_of(number: float) -> int:
    """The bucket that a number belongs to."""
    return round(math.log(max(number, SMALLEST) / SMALLEST) / math.log(GROWTH))


def middle_of(bucket: int) -> float:
    """The number in the middle of a bucket."""
    return float(SMALLEST * GROWTH**bucket)


def percentile(histogram: Mapping[int, int], percent: float) -> int | None:
    """The lowest bucket that so many percent of the numbers do not exceed; None without numbers."""
    if not histogram:
        return None
    buckets, counts = np.array(sorted(histogram.items())).T
    return int(buckets[np.searchsorted(counts.cumsum(), percent / 100 * counts.sum())])


def jains_index(shares: Sequence[int]) -> float:
    """
    How equal the shares are: 1 if they are equal, 1/n if one of n has everything (Jain, Chiu and Hawe 1984).

    Without any share nobody has more than another: 1.
    """
    counted = np.array(shares, np.float64)
    return float(counted.sum() ** 2 / (len(counted) * counted @ counted)) if counted.any() else 1.0


def joining_of(reports: Sequence[Report]) -> dict[str, object]:
    """The fields of the result that describe how the workers joined."""
    ready = _together(one.counts.ready_seconds for one in reports)
    took = max(one.began + one.seconds for one in reports) - min(one.began for one in reports)
    return {
        "joined": ready.total(),
        "joins_per_second": ready.total() / took if took > 0 else 0.0,
        "join_seconds": _times(_together(one.counts.join_seconds for one in reports)),
        "ready_seconds": _times(ready),
    }


def pushing_of(reports: Sequence[Report], *, vector_bytes: int) -> dict[str, object]:
    """The fields of the result that describe how they pushed. `vector_bytes`: of a gradient and weights."""
    rate = sum(sum(one.settled) / one.seconds for one in reports)
    versions = _together(one.counts.staleness for one in reports)
    settled = [count for one in reports for count in one.settled]
    return {
        "seconds": max(one.seconds for one in reports),
        "pushes": sum(settled),
        "pushes_per_second": rate,
        "bytes_per_second": rate * vector_bytes,
        "round_trip_seconds": _times(_together(one.counts.round_trip_seconds for one in reports)),
        "staleness_mean": sum(late * count for late, count in versions.items()) / max(1, versions.total()),
        "staleness_p99": float(percentile(versions, 99) or 0),
        "fairness": jains_index(settled),
        "discarded": sum(one.counts.discarded for one in reports),
        "lost": sum(one.lost for one in reports),
    }


def refusals_of(reports: Sequence[Report]) -> dict[str, object]:
    """The fields of the result that count refusals."""
    reasons = {code: sentence for one in reports for code, sentence in one.counts.reasons.items()}
    return {"refused": dict(_together(one.counts.refused for one in reports)), "reasons": reasons}


def memory_of(
    before: Status, joined: Status, pushing: Sequence[Status], after: Status, *, workers: int, vector_bytes: int
) -> ServerMemory:
    """The server's memory by the statuses that it has sent. `vector_bytes`: of a gradient and weights, on the wire."""
    return ServerMemory(
        before=before.memory_bytes,
        joined=joined.memory_bytes,
        pushing=max((one.memory_bytes for one in pushing), default=joined.memory_bytes),
        after=after.memory_bytes,
        peak=after.memory_peak_bytes,
        most_growth=FIRST_BYTES + workers * (WORKER_BYTES + vector_bytes),
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


def _together(counts: Iterable[Mapping[K, int]]) -> Counter[K]:
    whole: Counter[K] = Counter()
    for one in counts:
        whole.update(one)
    return whole


def _times(histogram: Mapping[int, int]) -> Times:
    buckets = [percentile(histogram, percent) for percent in (50, 99, 100)]
    p50, p99, longest = (None if bucket is None else middle_of(bucket) for bucket in buckets)
    return Times(p50=p50, p99=p99, longest=longest)


def _text_of(times: Times) -> str:
    if times.p50 is None or times.p99 is None or times.longest is None:
        return "none"
    return f"p50 {_seconds(times.p50)}   p99 {_seconds(times.p99)}   longest {_seconds(times.longest)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
