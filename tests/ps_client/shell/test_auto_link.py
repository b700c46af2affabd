"""The choice for each link, and that the link is measured as it is."""

from collections.abc import Sequence
from typing import Literal

import pytest
import torch
from torch import Tensor

from ps_client.shell.auto_link import UNROLLS, AutoLink, Link, choice, measure
from ps_client.shell.remote_parameters import Newest
from ps_common.protocol.codecs import encoded_bytes
from ps_common.protocol.messages import Episode
from ps_common.settings.run_spec import Consistency, RunSpec, Wire

HERE = Link(0.0002, 1e9, 1e9)
FAR = Link(0.1, 1.25e6, 1.25e6)  # 10 Mbit/s
SIZE = 10_000


class ALink:
    """A server at the other end of a link, on a clock of the test."""

    def __init__(self, link: Link, unroll_seconds: float = 0.02) -> None:
        self.now = 0.0
        self.wire = Wire()
        self.pushes = 0
        self._link = link
        self._unroll_seconds = unroll_seconds

    def seed(self, weights: Tensor) -> bool:
        self.now += self._link.round_trip_seconds + 4 * len(weights) / self._link.up
        return True

    def pull(self, have: Newest | None = None, *, target: bool = False) -> Newest:
        self.now += self._link.round_trip_seconds
        if have is None:
            self.now += encoded_bytes(self.wire.weight_codec, SIZE) / self._link.down
        return Newest(1, 1, 0, 0, None)

    def push_pull(self, gradient: Tensor, *, computed_on: Newest, steps: int) -> Newest:
        self.pushes += 1
        self.now += self._link.round_trip_seconds
        return computed_on

    def unroll(self) -> None:
        self.now += self._unroll_seconds

    def use(self, wire: Wire) -> None:
        self.wire = wire

    def report(self, episodes: Sequence[Episode], meters: dict[str, float]) -> None: ...

    def finish(self) -> None: ...


@pytest.mark.parametrize("link", [HERE, FAR, Link(0.03, 1e5, 1e7)])
def test_a_link_is_measured_as_it_is(link: Link) -> None:
    server = ALink(link)
    found = measure(server, torch.zeros(SIZE), server.wire, clock=lambda: server.now)
    assert found.round_trip_seconds == pytest.approx(link.round_trip_seconds)
    assert found.up == pytest.approx(link.up, rel=1e-3)
    assert found.down == pytest.approx(link.down, rel=1e-3)


class ARunWithWeights(ALink):
    """It is offered none: `seed` sends nothing."""

    def seed(self, weights: Tensor) -> bool:
        return False


def test_where_nothing_was_sent_up_that_direction_is_taken_to_be_as_the_other() -> None:
    server = ARunWithWeights(FAR)
    found = measure(server, torch.zeros(SIZE), server.wire, clock=lambda: server.now)
    assert found.up == found.down == pytest.approx(FAR.down, rel=1e-3)


def test_a_vector_that_takes_less_than_the_noise_of_round_trips_is_no_sign_of_a_fast_link() -> None:
    server = ALink(Link(0.1, 1e12, 1e12))
    found = measure(server, torch.zeros(SIZE), server.wire, clock=lambda: server.now)
    assert found.down == pytest.approx(4 * SIZE / 0.01)


def test_on_one_host_everything_stays_exact() -> None:
    wire, why = choice(HERE, Wire(), RunSpec(), size=SIZE, unroll_seconds=0.02)
    assert wire == Wire()
    assert "round trip 0.2 ms" in why


def test_a_far_link_gets_small_codecs_and_says_why() -> None:
    wire, why = choice(FAR, Wire(), RunSpec(), size=SIZE, unroll_seconds=0.02)
    assert wire == Wire(gradient_codec="topk", weight_codec="delta", pull_every=2)
    assert "round trip 100 ms, 10 Mbit/s up, 10 down" in why


def test_a_worker_that_would_do_little_but_wait_prefetches() -> None:
    assert choice(FAR, Wire(), RunSpec(), size=SIZE, unroll_seconds=0.004)[0].prefetch == 2
    assert choice(FAR, Wire(), RunSpec(), size=SIZE, unroll_seconds=0.006)[0].prefetch == 0
    typed = Wire(prefetch=1)
    assert choice(FAR, typed, RunSpec(), size=SIZE, unroll_seconds=0.004, typed=["prefetch"])[0].prefetch == 1


def test_a_slower_link_never_gets_more_exact_codecs() -> None:
    sizes = []
    for rate in (1e9, 1e8, 1e7, 3e6, 1e6, 1e5):
        wire, _ = choice(Link(0.02, rate, rate), Wire(), RunSpec(), size=SIZE, unroll_seconds=0.1)
        both = encoded_bytes(wire.gradient_codec, SIZE) + encoded_bytes(wire.weight_codec, SIZE) / wire.pull_every
        sizes.append(both)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == 8 * SIZE


def test_a_slow_game_needs_nothing_on_a_slow_link() -> None:
    wire, _ = choice(FAR, Wire(), RunSpec(), size=SIZE, unroll_seconds=60.0)
    assert (wire.gradient_codec, wire.pull_every) == ("float32", 1)


def test_what_the_user_typed_stands() -> None:
    typed = Wire(gradient_codec="int8", prefetch=0)
    wire, _ = choice(
        FAR, typed, RunSpec(), size=SIZE, unroll_seconds=0.02, typed=["gradient_codec", "prefetch", "pull_every"]
    )
    assert wire == Wire(gradient_codec="int8", weight_codec="delta")


@pytest.mark.parametrize("rule", ["ssp", "paced", "sync"])
def test_where_workers_wait_for_each_other_every_push_pulls(rule: Literal["ssp", "paced", "sync"]) -> None:
    wire, _ = choice(FAR, Wire(), RunSpec(consistency=Consistency(rule=rule)), size=SIZE, unroll_seconds=0.02)
    assert wire.pull_every == 1


def test_the_choice_is_made_once_after_some_unrolls_by_the_quickest_of_them() -> None:
    server = ALink(FAR)
    unrolls: list[float] = []
    chosen: list[int] = []

    def choose(link: Link, unroll_seconds: float) -> tuple[Wire, str]:
        unrolls.append(unroll_seconds)
        return Wire(pull_every=len(unrolls)), "because"

    parameters = AutoLink(server, FAR, choose, clock=lambda: server.now)
    server.now += 5.0  # the first unroll takes longer
    for _ in range(2 * UNROLLS - 1):
        server.unroll()
        parameters.push_pull(torch.zeros(SIZE), computed_on=Newest(1, 1, 0, 0, None), steps=1)
        chosen.append(server.wire.pull_every)
    assert unrolls == [FAR.round_trip_seconds, pytest.approx(0.02)]
    assert chosen == [1] * (UNROLLS - 1) + [2] * UNROLLS
    assert server.pushes == 2 * UNROLLS - 1


def test_on_a_near_link_vectors_are_exact_until_the_choice() -> None:
    server = ALink(HERE)
    parameters = AutoLink(server, HERE, lambda link, seconds: (Wire(pull_every=2), "because"), clock=lambda: server.now)
    assert server.wire == Wire()
    for _ in range(UNROLLS):
        parameters.push_pull(torch.zeros(SIZE), computed_on=Newest(1, 1, 0, 0, None), steps=1)
    assert server.wire == Wire(pull_every=2)
