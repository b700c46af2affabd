"""
A fleet as a closed queueing network, event by event: workers compute, push to every shard, and wait for all replies. A
worker may be a gang: it has computed when the slowest of its members has, and its speaker has gathered the gradients.

Pure: numbers in, numbers out, and the seed decides the rest. simpy keeps the events. Service times come from
service_times.py; this file must not know where they were measured.

A station serves one job at a time, first come, first served: a thread of a server, its network link in one direction,
the thread of a process that has many synthetic workers. A thread without a job sleeps, and the next job takes longer by
what it costs to wake it. Jobs that queue may share a part of their work, as many as the server takes together: the
first of them does it. A message that one thread sends while another receives it takes both at once.
"""

import random
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

import simpy

Process = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, kw_only=True)
class Visit:
    """A job at the stations of these names at once, with seconds of service at each. Without stations it is a delay."""

    seconds: tuple[float, ...]
    stations: tuple[str, ...] = ()
    waking: tuple[float, ...] = ()  # more seconds, by station, where it sleeps when the job comes; () for none
    shared: float = 0.0  # more seconds at each station for the first of the jobs that it takes together


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """
    `workers` alike, each of which computes and then pushes to all `shards`.

    `to_shard` and `from_shard` are what a push visits before and after the update. Stations whose name begins with
    "worker" belong to the process of the worker, of which there are `processes`; others belong to the shard.
    """

    workers: int
    compute_seconds: float
    to_shard: tuple[Visit, ...]
    update: Visit
    from_shard: tuple[Visit, ...]
    shards: int = 1
    members: int = 1  # of each worker, which is a gang then: processes that compute at the same time
    gather_seconds: float = 0.0  # then, until the speaker pushes
    together: int = 1  # jobs of which the first does what is shared
    processes: int = 0  # 0: each worker has its own
    uneven: float = 0.2  # computing takes so much more or less, evenly distributed
    exponential: bool = False  # it takes exponentially distributed times instead


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The figures of a simulated fleet, after the start was over."""

    pushes_per_second: float
    mean_round_trip: float  # seconds
    round_trip_p50: float
    round_trip_p99: float
    staleness_mean: float  # versions
    staleness_p99: float
    worker_share: float  # of the time of a worker in which it computes, or the slowest of its members
    busiest: str  # station
    busiest_share: float  # of the time


class Station:
    """One server with a queue, first come, first served."""

    def __init__(self, environment: simpy.Environment, together: int) -> None:
        self._environment = environment
        self._together, self._left = together, 0  # how many of the next jobs need not do what is shared
        self._free_at = -1.0  # it sleeps since then, unless that is yet to come
        self.busy_seconds = 0.0

    def end_of(self, seconds: float, waking: float, shared: float) -> float:
        """When this job will end, which is known when it comes."""
        now = self._environment.now
        sleeps = self._free_at < now
        if sleeps or not self._left:
            self._left = self._together
            seconds += shared
        self._left -= 1
        seconds += waking if sleeps else 0.0
        self.busy_seconds += seconds
        self._free_at = max(now, self._free_at) + seconds
        return self._free_at


class Simulation:
    """One fleet from its start on."""

    def __init__(self, fleet: Fleet, *, pushes: int, seed: int = 0) -> None:
        """It ends after `pushes` pushes; the first third is the start, and is not counted."""
        self._fleet, self._pushes = fleet, pushes
        self._environment = simpy.Environment()
        self._stations: dict[tuple[str, int], Station] = {}
        self._random = random.Random(seed)
        self._versions = [0] * fleet.shards
        self._done = 0
        self._over = self._environment.event()
        self._begin()

    def predict(self) -> Prediction:
        """Run it."""
        fleet = self._fleet
        for worker in range(fleet.workers):
            self._environment.process(self._work(worker))
        self._environment.run(until=self._over)
        took = self._environment.now - self._began
        trips = sorted(self._trips)
        late = sorted(self._staleness.elements())
        busy = {key: station.busy_seconds for key, station in self._stations.items()}
        (busiest, _), seconds = max(busy.items(), key=lambda one: one[1])
        return Prediction(
            pushes_per_second=len(trips) / took,
            mean_round_trip=sum(trips) / len(trips),
            round_trip_p50=trips[len(trips) // 2],
            round_trip_p99=trips[len(trips) * 99 // 100],
            staleness_mean=sum(late) / len(late),
            staleness_p99=late[len(late) * 99 // 100],
            worker_share=self._computed / (took * fleet.workers),
            busiest=busiest,
            busiest_share=min(1.0, seconds / took),
        )

    def _begin(self) -> None:
        """Count from here on."""
        self._began = self._environment.now
        self._trips: list[float] = []
        self._staleness: Counter[int] = Counter()
        self._computed = 0.0
        for station in self._stations.values():
            station.busy_seconds = 0.0

    def _work(self, worker: int) -> Process:
        """One worker: compute, push, wait for the replies of all shards."""
        fleet, environment = self._fleet, self._environment
        yield environment.timeout(self._random.random() * fleet.compute_seconds)
        versions = [0] * fleet.shards
        while True:
            if fleet.compute_seconds:
                seconds = self._drawn_seconds()
                yield environment.timeout(seconds)
                self._computed += seconds
            if fleet.gather_seconds:
                yield environment.timeout(fleet.gather_seconds)
            began = environment.now
            if fleet.shards == 1:
                yield from self._push(worker, 0, versions)
            else:
                shards = range(fleet.shards)
                yield environment.all_of([environment.process(self._push(worker, one, versions)) for one in shards])
            self._trips.append(environment.now - began)
            self._done += 1
            if self._done == self._pushes // 3:
                self._begin()
            elif self._done == self._pushes:
                self._over.succeed()

    def _drawn_seconds(self) -> float:
        """The time of computing: of the slowest member."""
        return max(self._drawn_once() for _ in range(self._fleet.members))

    def _drawn_once(self) -> float:
        mean, uneven = self._fleet.compute_seconds, self._fleet.uneven
        if self._fleet.exponential:
            return self._random.expovariate(1 / mean)
        return mean * self._random.uniform(1 - uneven, 1 + uneven)

    def _push(self, worker: int, shard: int, versions: list[int]) -> Process:
        """One push to one shard, and its reply."""
        yield from self._through(self._fleet.to_shard, worker, shard)
        yield self._at(self._fleet.update, worker, shard)
        self._staleness[self._versions[shard] - versions[shard]] += 1
        self._versions[shard] += 1
        versions[shard] = self._versions[shard]
        yield from self._through(self._fleet.from_shard, worker, shard)

    def _through(self, visits: tuple[Visit, ...], worker: int, shard: int) -> Process:
        """One visit after another."""
        for visit in visits:
            yield self._at(visit, worker, shard)

    def _at(self, visit: Visit, worker: int, shard: int) -> simpy.Event:
        """An event at the end of this visit."""
        if not visit.stations:
            return self._environment.timeout(visit.seconds[0])
        process = worker % self._fleet.processes if self._fleet.processes else worker
        jobs = []
        waking = visit.waking or (0.0,) * len(visit.stations)
        for name, seconds, more in zip(visit.stations, visit.seconds, waking, strict=True):
            key = (name, process if name.startswith("worker") else shard)
            station = self._stations.get(key)
            if station is None:
                station = self._stations[key] = Station(self._environment, self._fleet.together)
            jobs.append((station, seconds, more))
        end = max(station.end_of(seconds, more, visit.shared) for station, seconds, more in jobs)
        return self._environment.timeout(end - self._environment.now)


def predicted(fleet: Fleet, *, pushes: int = 0, seed: int = 0) -> Prediction:
    """The prediction for a fleet, from at least 20 pushes of each worker unless told."""
    return Simulation(fleet, pushes=pushes or max(1000, 20 * fleet.workers), seed=seed).predict()
