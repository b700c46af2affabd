"""The parameters as the trainer sees them, over the real machine and an instant connection."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from ps_client.machine.effects import Fail, Resolve, Transmit
from ps_client.machine.parameter_client import Call, ParameterClient
from ps_client.shell.newest import Newest
from ps_client.shell.remote_parameters import MOST_DISCARDED, RemoteParameters
from ps_client.shell.zmq_client import ZmqClient
from ps_common.errors import RequestRefused, WireError
from ps_common.protocol import messages
from ps_common.protocol.codecs import CODECS
from ps_common.protocol.deltas import Base
from ps_common.protocol.messages import Episode, Settlement, ToServer, ToWorker
from ps_common.protocol.wire import read_to_server, to_frames
from ps_common.settings.run_spec import Wire
from tests.ps_client.client_transcripts import SCHEMA, joined_client

Handler = Callable[[ToServer, bytes], tuple[ToWorker, bytes]]


class InstantShell:
    """A shell without sockets: the test's handler replies to each call at once."""

    def __init__(self, machine: ParameterClient, handler: Handler) -> None:
        self.received: list[tuple[ToServer, bytes]] = []
        self.futures: list[Future[Any]] = []
        self.machine = machine
        self._handler = handler

    def call(self, method: Callable[..., Call]) -> Future[Any]:
        future: Future[Any] = Future()
        self.futures.append(future)
        _, effects = method(now=0.0)
        for effect in effects:
            match effect:
                case Transmit():
                    whole = b"".join(bytes(part) for part in effect.vector)
                    self.received.append((effect.message, whole))
                    reply, vector = self._handler(effect.message, whole)
                    effects += self.machine.receive(reply, [bytearray(vector)] if vector else [], now=0.0)
                case Resolve():
                    future.set_result((effect.reply, effect.vector))
                case Fail():
                    future.set_exception(effect.error)
        return future


def remote(handler: Handler, **how: Any) -> tuple[RemoteParameters, InstantShell]:
    machine = joined_client(epoch=7)
    wire = InstantShell(machine, handler)
    return RemoteParameters([cast(ZmqClient, wire)], SCHEMA, Wire(**how)), wire


class ManualShell(InstantShell):
    """A shell that replies when the test calls `reply`."""

    def __init__(self, machine: ParameterClient, handler: Handler) -> None:
        super().__init__(machine, handler)
        self._calls: list[tuple[Callable[..., Call], Future[Any]]] = []
        self.replies_at_once = False

    def call(self, method: Callable[..., Call]) -> Future[Any]:
        if self.replies_at_once:
            return super().call(method)
        self._calls.append((method, Future()))
        return self._calls[-1][1]

    def reply(self) -> None:
        """Complete the oldest call."""
        method, future = self._calls.pop(0)
        future.set_result(super().call(method).result(0))


def weights(request: int, *values: float, settled: Settlement | None = None) -> tuple[ToWorker, bytes]:
    reply = messages.Weights(request=request, epoch=7, version=3, global_steps=60, target_version=2, settled=settled)
    return reply, np.array(values, dtype=np.float32).tobytes()


def not_modified(request: int, settled: Settlement | None = None) -> tuple[ToWorker, bytes]:
    return messages.NotModified(request=request, epoch=7, version=3, global_steps=60, settled=settled), b""


def newest(epoch: int = 7, version: int = 3) -> Newest:
    return Newest(epoch, version, global_steps=0, target_version=0, weights=None)


def test_a_pull_names_the_version_it_has_and_returns_no_weights_if_that_is_the_newest() -> None:
    parameters, wire = remote(lambda message, _: not_modified(message.request))
    pulled = parameters.pull(newest(7, 3), target=True)
    assert pulled.weights is None
    assert (pulled.epoch, pulled.version) == (7, 3)
    assert wire.received == [(messages.Pull(request=3, have_epoch=7, have_version=3, target=True), b"")]


def test_a_gradient_is_pushed_with_the_version_it_was_computed_on() -> None:
    settled = Settlement(sequence=1, verdict="applied", version=3)
    parameters, wire = remote(lambda message, _: weights(message.request, 8, 9, settled=settled))
    newer = parameters.push_pull(torch.tensor([0.5, -0.5]), computed_on=newest(7, 2), steps=160)
    ((push, gradient),) = wire.received
    assert isinstance(push, messages.Push)
    assert push.weight_codec == "float32"
    assert (push.epoch, push.computed_on, push.have_epoch, push.have_version, push.steps) == (7, 2, 7, 2, 160)
    assert push.schema_hash == SCHEMA.hash
    assert np.frombuffer(gradient, dtype="<f4").tolist() == [0.5, -0.5]
    assert newer.weights is not None
    assert newer.weights.tolist() == [8, 9]
    assert newer.settled == settled


def test_with_prefetch_a_push_is_not_waited_for_until_enough_are_in_flight() -> None:
    values = iter([(1, 2), (3, 4)])

    def settled(message: ToServer, vector: bytes) -> tuple[ToWorker, bytes]:
        assert isinstance(message, messages.Push)
        settlement = Settlement(sequence=message.sequence, verdict="applied", version=3)
        return weights(message.request, *next(values), settled=settlement)

    machine = joined_client(epoch=7)
    wire = ManualShell(machine, settled)
    parameters = RemoteParameters([cast(ZmqClient, wire)], SCHEMA, Wire(prefetch=1))
    have = newest(7, 2)
    unknown = parameters.push_pull(torch.tensor([0.5, -0.5]), computed_on=have, steps=160)
    assert unknown == replace(have, weights=None), "nothing newer is known, and the weights stay"
    wire.reply()
    first = parameters.push_pull(torch.tensor([1.5, -1.5]), computed_on=unknown, steps=160)
    assert first.weights is not None
    assert first.weights.tolist() == [1, 2]
    assert first.settled == Settlement(sequence=1, verdict="applied", version=3)
    wire.reply()
    assert [np.frombuffer(gradient, dtype="<f4").tolist() for _, gradient in wire.received] == [
        [0.5, -0.5],
        [1.5, -1.5],
    ]


def test_with_pull_every_two_each_second_push_brings_weights_and_the_others_are_settled_alone() -> None:
    def settled(message: ToServer, vector: bytes) -> tuple[ToWorker, bytes]:
        assert isinstance(message, messages.Push)
        settlement = Settlement(sequence=message.sequence, verdict="applied", version=3)
        if message.weight_codec is None:
            return messages.Settled(request=message.request, epoch=7, settlement=settlement, global_steps=60), b""
        return weights(message.request, 1, 2, settled=settlement)

    parameters, wire = remote(settled, pull_every=2)
    have = newest(7, 2)
    first = parameters.push_pull(torch.tensor([0.5, -0.5]), computed_on=have, steps=160)
    assert first.weights is None
    assert (first.epoch, first.version, first.global_steps) == (7, 2, 60), "the weights are still those of version 2"
    assert first.settled is not None
    second = parameters.push_pull(torch.tensor([0.5, -0.5]), computed_on=first, steps=160)
    assert second.weights is not None
    assert second.version == 3
    assert [message.weight_codec for message, _ in wire.received if isinstance(message, messages.Push)] == [
        None,
        "float32",
    ]


def test_a_reply_that_is_older_than_what_was_pulled_since_returns_no_weights() -> None:
    settlement = Settlement(sequence=1, verdict="applied", version=3)
    machine = joined_client(epoch=7)
    wire = ManualShell(machine, lambda message, _: weights(message.request, 1, 2, settled=settlement))
    parameters = RemoteParameters([cast(ZmqClient, wire)], SCHEMA, Wire(prefetch=1))
    parameters.push_pull(torch.tensor([0.5, -0.5]), computed_on=newest(7, 2), steps=160)
    wire.reply()
    pulled = newest(7, 4)
    newer = parameters.push_pull(torch.tensor([1.5, -1.5]), computed_on=pulled, steps=160)
    assert newer == replace(pulled, settled=settlement)


def bfloat16(*values: float) -> bytes:
    return bytes(CODECS["bfloat16"].encode(torch.tensor(values)))


def test_deltas_begin_with_whole_weights_and_lead_from_what_each_push_was_computed_on() -> None:
    """With prefetch replies come when the trainer has gone on from a version that is older than the newest received."""
    versions = {3: bfloat16(1, 2), 4: bfloat16(1, 3), 5: bfloat16(2, 3), 6: bfloat16(7, 8)}
    newest_version = iter([3, 4, 5, 6])

    def served(message: ToServer, vector: bytes) -> tuple[ToWorker, bytes]:
        assert isinstance(message, messages.Pull | messages.Push)
        fields: dict[str, Any] = {"request": message.request, "epoch": 7, "version": next(newest_version)}
        fields |= {"global_steps": 60, "target_version": 2}
        if isinstance(message, messages.Push):
            fields["settled"] = Settlement(sequence=message.sequence, verdict="applied", version=fields["version"])
        encoded = versions[fields["version"]]
        codec = message.codec if isinstance(message, messages.Pull) else message.weight_codec
        if codec == "bfloat16":
            return messages.Weights(**fields, codec=codec), encoded
        base = message.have_version
        return messages.Weights(**fields, codec="delta", base=base), Base(versions[base], 2).delta_to(encoded)

    machine = joined_client(epoch=7)
    wire = ManualShell(machine, served)
    parameters = RemoteParameters([cast(ZmqClient, wire)], SCHEMA, Wire(weight_codec="delta", prefetch=1))
    wire.replies_at_once = True
    have = parameters.pull()
    wire.replies_at_once = False
    assert have.weights is not None
    assert have.weights.tolist() == [1, 2]
    unknown = parameters.push_pull(torch.zeros(2), computed_on=have, steps=1)
    wire.reply()
    later = parameters.push_pull(torch.zeros(2), computed_on=unknown, steps=1)
    assert later.weights is not None
    assert later.weights.tolist() == [1, 3]
    wire.reply()
    newest = parameters.push_pull(torch.zeros(2), computed_on=later, steps=1)
    assert newest.weights is not None
    assert newest.weights.tolist() == [2, 3]
    wire.reply()
    pushes = [message for message, _ in wire.received if isinstance(message, messages.Push)]
    assert [(push.weight_codec, push.have_version) for push in pushes] == [("delta", 3), ("delta", 3), ("delta", 4)]


def test_weights_of_the_wrong_size_are_an_error_and_not_weights() -> None:
    parameters, _ = remote(lambda message, _: weights(message.request, 1, 2, 3))
    with pytest.raises(WireError, match="2 elements takes 8 bytes, not 12"):
        parameters.pull()


def test_a_report_of_very_many_games_is_cut_so_that_each_part_can_be_sent() -> None:
    parameters, wire = remote(lambda message, _: (messages.Noted(request=0, sequence=1), b""))
    games = [Episode(-1e300 / (1 + number), 2**40 + number) for number in range(5000)]
    parameters.report(games, {"entropy": 1.0})
    reports = [message for message, _ in wire.received if isinstance(message, messages.Report)]
    assert [game for report in reports for game in report.episodes] == games
    assert [report.sequence for report in reports] == list(range(1, len(reports) + 1))
    assert all(report.meters == {"entropy": 1.0} for report in reports)
    assert [read_to_server(to_frames(report))[0] for report in reports] == reports


class Verdicts:
    """Settles each push with the next of some verdicts, the last one for ever."""

    def __init__(self, *verdicts: str) -> None:
        self._verdicts = list(verdicts)
        self.parameters, _ = remote(self._reply)

    def push(self, *, steps: int = 1) -> None:
        self.parameters.push_pull(torch.zeros(2), computed_on=newest(), steps=steps)

    def _reply(self, message: ToServer, vector: bytes) -> tuple[ToWorker, bytes]:
        code = self._verdicts.pop(0) if len(self._verdicts) > 1 else self._verdicts[0]
        verdict: Any = code if code in ("applied", "duplicate") else "discarded"
        settled = Settlement(sequence=1, verdict=verdict, version=3, code=code, reason="because")
        return not_modified(message.request, settled)


def test_a_worker_gives_up_when_no_gradient_is_accepted_any_more() -> None:
    server = Verdicts("not_finite")
    for _ in range(MOST_DISCARDED - 1):
        server.push()
    with pytest.raises(
        RequestRefused, match=rf"because \({MOST_DISCARDED} unrolls in a row were discarded\)"
    ) as refused:
        server.push()
    assert refused.value.code == "not_finite"


def test_one_bad_unroll_of_many_minibatches_ends_nobody() -> None:
    """Its steps are counted with its first push."""
    server = Verdicts("not_finite")
    for _ in range(MOST_DISCARDED - 1):
        for minibatch in range(MOST_DISCARDED + 1):
            server.push(steps=0 if minibatch else 64)
    with pytest.raises(RequestRefused):
        server.push(steps=64)


def test_a_gradient_of_another_network_ends_the_worker_at_once() -> None:
    with pytest.raises(RequestRefused, match="because"):
        Verdicts("schema_mismatch").push()
