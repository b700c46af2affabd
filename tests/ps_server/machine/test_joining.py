"""HELLO and SEED, as transcripts: admission, the first worker's proposal, and the first weights."""

from math import nan
from typing import Any

import pytest

from ps_common.protocol import messages
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_server.machine import admission
from ps_server.machine.allowances import LIMITS
from ps_server.machine.ending import Phase
from ps_server.machine.membership import SILENT_SECONDS
from ps_server.machine.parts import ANYBODY, Sender
from ps_server.replication.standby_copy import Replay
from ps_server.state import ledger
from ps_server.state.training_run import TrainingRun
from tests.ps_server.transcripts import (
    Transcript,
    encoded,
    sends,
)
from tests.rows import row


def setting(run: dict[str, Any], section: str, name: str) -> Any:
    return run[section][name]


# -- the run is decided -----------------------------------------------------------------------------------------------


def test_the_first_worker_decides_the_run(empty: Transcript) -> None:
    proposed_run = {"preset": "mine", "optimizer": {"name": "adam"}, "environment": {"id": "CartPole-v1"}}
    run = empty.hello("a", proposed_run=proposed_run).run
    assert run["preset"] == "mine"
    assert (setting(run, "optimizer", "name"), setting(run, "environment", "id")) == ("adam", "CartPole-v1")
    assert empty.hello("b", proposed_run={"environment": {"id": "Acrobot-v1"}}).run == run


def test_the_servers_own_flags_stand_above_a_proposal() -> None:
    server = Transcript(overrides={"schedule.learning_rate": 0.5, "optimizer.name": "momentum"})
    proposed_run = {"optimizer": {"name": "adam", "beta1": 0.5}, "schedule": {"learning_rate": 0.1, "anneal_steps": 9}}
    run = server.hello("a", proposed_run=proposed_run).run
    assert run["optimizer"] == {"name": "momentum", "momentum": 0.9}
    assert (setting(run, "schedule", "learning_rate"), setting(run, "schedule", "anneal_steps")) == (0.5, 9)


@pytest.mark.parametrize(
    ("proposed_run", "names"),
    [
        ({"algorithm": {"name": "a3c", "unroll_length": 0}}, "--unroll-length"),
        ({"optimizer": {"name": "magic"}}, "--optimizer"),
        ({"schedule": {"learning_rate": "fast"}}, "--learning-rate"),
        ({"no_such_section": {}}, "no_such_section"),
        ({"environment": 3}, "--environment"),
        ({"consistency": {"quorum": 10**15}}, "--quorum"),
    ],
    ids=str,
)
def test_a_senseless_proposal_is_refused_naming_the_worker_and_the_flag(
    empty: Transcript, proposed_run: dict[str, Any], names: str
) -> None:
    refused = empty.refusal("a", empty.hello_of("worker-7", proposed_run=proposed_run))
    assert refused.code == "bad_run"
    assert "worker-7" in refused.reason
    assert names in refused.reason
    assert empty.machine.run is None, "the next worker may decide"
    assert empty.hello("b").number == 0


# -- who may join -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "flag"),
    [
        ({"schedule.learning_rate": 0.5}, "--learning-rate 0.5"),
        ({"environment.id": "Acrobot-v1"}, "--environment Acrobot-v1"),
        ({"optimizer.beta1": 0.5}, "--beta1"),
        ({"optimizer.name": "sgd", "network.hidden": (1, 2)}, "--hidden"),
    ],
    ids=str,
)
def test_a_wish_that_contradicts_the_run_is_refused_naming_the_flag(
    server: Transcript, overrides: dict[str, Any], flag: str
) -> None:
    refused = server.refusal("c", server.hello_of("c", overrides=overrides))
    assert refused.code == "contradiction"
    assert flag in refused.reason
    assert server.refusal("c", messages.Heartbeat(request=900)).code == "unknown_worker"


@pytest.mark.parametrize(("protocols", "welcome"), [((1, 1), True), ((1, 9), True), ((0, 1), True), ((2, 3), False)])
def test_a_worker_must_speak_the_servers_protocol(
    server: Transcript, protocols: tuple[int, int], welcome: bool
) -> None:
    hello = server.hello_of("c", protocols=protocols, release="99.0.0")
    if welcome:
        assert server.answer(messages.Welcome, "c", hello).protocol == 1
    else:
        refused = server.refusal("c", hello)
        assert refused.code == "protocol"
        assert "speaks protocol 1, the worker 2 to 3; the worker is of ps-rl 99.0.0, " in refused.reason
        assert refused.reason.endswith("bring both to one release")


@pytest.mark.parametrize("codecs", [(), ("zip",), ("zip", "topk")], ids=str)
def test_a_worker_without_a_codec_in_common_is_refused(server: Transcript, codecs: tuple[str, ...]) -> None:
    refused = server.refusal("c", server.hello_of("c", codecs=codecs))
    assert refused.code == "unknown_codec"
    assert "float32" in refused.reason


def test_a_run_remembers_no_more_workers_than_a_checkpoint_can_hold(
    server: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "MAX_WORKERS", 3)
    server.hello("c")
    for worker in ("a", "b", "c"):
        server.push(worker, 1)
    assert server.refusal("d", server.hello_of("d")).code == "too_many_workers"
    server.goodbye("c")
    server.hello("c", process=2, peer="another")
    assert len(server.run.ledger.accounts) == 3


def test_a_standby_forgets_the_names_that_the_primary_forgets(
    server: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_KEPT", 10)
    server.hello("quiet")
    for number in range(3):
        server.push("a", number + 1)
        server.push("b", 1 + number, [nan] * 3)
    saved, told = server.save_and_complete(), []
    standby = TrainingRun.restored(saved.vectors, saved.record, now=server.now)
    server.run.log.take(is_read=True)
    monkeypatch.setattr(
        server.machine.replication, "send_changes", lambda log, **_: told.extend(log.take(is_read=True)) or []
    )
    server.now += SILENT_SECONDS
    for worker in ("a", "b"):
        server.heartbeat(worker)
    for number in range(200):
        assert server.hello(f"name-{number}", peer=f"peer-{number}", oldest=7).number == number + 3
        server.now += SILENT_SECONDS / 10
        server.heartbeat("a")
    accounts = server.run.ledger.accounts
    assert 10 <= len(accounts) <= 30
    assert "a" in accounts
    assert not {"quiet", "b"} & accounts.keys()
    assert server.push("a", 3).verdict == "duplicate"
    replay = Replay(standby)
    for entry in told:
        update = messages.Update(request=1, number=entry.position, worker_id=entry.worker_id, message=entry.message)
        replay.apply(update, entry.vector, now=server.now)
    numbers = [{name: one.number for name, one in run.ledger.accounts.items()} for run in (server.run, standby)]
    assert numbers[0] == numbers[1]
    assert server.run.ledger.superseded == standby.ledger.superseded


def test_a_run_that_had_as_many_workers_as_it_can_hold_takes_new_ones_after_a_day(
    server: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "MOST_KEPT", 2)
    monkeypatch.setattr(admission, "MAX_WORKERS", 2)
    for worker in ("a", "b"):
        server.push(worker, 1)
    assert server.refusal("c", server.hello_of("c")).code == "too_many_workers"
    server.now += SILENT_SECONDS
    server.heartbeat("b")
    server.hello("c")
    assert server.run.ledger.accounts.keys() == {"b", "c"}


def test_one_connection_or_key_brings_so_many_new_names_and_the_others_join(
    server: Transcript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LIMITS, "name", (30, 1.0))
    for who in (ANYBODY, Sender(key="k" * 40, is_admin=False)):
        with row(who):
            codes = []
            for number in range(31):
                hello = server.hello_of(f"of-{who.key[:1]}-{number}")
                peer = b"one" if who is ANYBODY else b"%d" % number
                told = sends(server.machine.receive(peer, hello, now=server.now, sender=who))
                codes += [one.message.code for one in told if isinstance(one.message, messages.Refused)]
            assert codes == ["too_many_workers"]
    assert server.hello("honest").incarnation == 1
    server.hello("a", peer="one")  # the run knows it


# -- the run is seeded ------------------------------------------------------------------------------------------------


def test_the_first_seed_wins_and_later_ones_are_not_needed(empty: Transcript) -> None:
    empty.hello("a")
    empty.hello("b")
    first, second = empty.seed("b", [1, 2, 3]), empty.seed("a", [7, 8, 9])
    assert (first.accepted, first.version) == (True, 1)
    assert (second.accepted, second.version) == (False, 1)
    assert empty.weights() == [1, 2, 3]
    assert empty.machine.phase is Phase.SERVING


@pytest.mark.parametrize(
    ("specs", "sentence"),
    [
        ((("policy.weight", (3, 1)), ("policy.bias", ())), "'policy.weight' is [2, 1] here and [3, 1] there"),
        ((("policy.weight", (2, 1)),), "'policy.bias' [] is missing there"),
        ((("policy.weight", (2, 1)), ("policy.bias", ()), ("more", (1,))), "'more' [1] is unknown here"),
        ((("policy.bias", ()), ("policy.weight", (2, 1))), "another order"),
    ],
    ids=str,
)
def test_a_seed_of_another_network_is_refused_naming_the_tensor(
    server: Transcript, specs: tuple[tuple[str, tuple[int, ...]], ...], sentence: str
) -> None:
    schema = Schema(TensorSpec(name, shape) for name, shape in specs)
    refused = server.refusal("b", messages.Seed(request=90, schema=schema.specs), encoded([0] * schema.size))
    assert refused.code == "schema_mismatch"
    assert sentence in refused.reason


def test_before_the_seed_there_is_nothing_to_push_to_and_nothing_newer_than_nothing(empty: Transcript) -> None:
    assert empty.hello("a").schema == ()
    refused = empty.refusal("a", empty.push_of(1), encoded([1, 1, 1]))
    assert refused.code == "no_weights"
    assert "SEED" in refused.reason
    pulled = empty.pull("a").message
    assert isinstance(pulled, messages.NotModified)
    assert (pulled.version, pulled.global_steps) == (0, 0)
    empty.seed("a")
    assert empty.push("a", 1).verdict == "applied", "the refused push was not settled"
