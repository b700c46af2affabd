"""A standby follows, and takes over with the primary's run, bit for bit."""

from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from ps_common.protocol import messages
from ps_common.protocol.record import Record
from ps_common.settings.run_spec import OPTIMIZER_SETTINGS
from ps_server.machine.ending import Phase
from ps_server.machine.parts import Sender
from ps_server.replication.replication import LEASE_SECONDS
from ps_server.state.effects import Exit, SaveCheckpoint, Send
from ps_server.state.training_run import TrainingRun
from tests.ps_server.standby_transcripts import PRIMARY, STANDBY, TAKEOVER_SECONDS, WithStandby
from tests.ps_server.transcripts import (
    EPOCH,
    RUN_ID,
    SCHEMA,
    a_lineage,
    a_run,
    encoded,
    later,
    notes,
    only,
)
from tests.records import LINEAGE
from tests.rows import row

Q_LEARNING: dict[str, Any] = {
    "algorithm": {"name": "one_step_q", "target_interval": 100},
    "schedule": {"learning_rate": 0.1, "final_learning_rate": 0.01, "anneal_steps": 5000},
}


def train(server: WithStandby, sequences: range, seed: int = 0) -> None:
    """Both workers push and report what only the sequence decides; each gradient is late."""
    for sequence in sequences:
        for worker in ("a", "b"):
            numbers = np.random.default_rng([seed, sequence, ord(worker)])
            version = max(1, server.machine.version - 3)
            server.push(worker, sequence, numbers.normal(size=3).tolist(), computed_on=version)
            if sequence % 3 == 0:
                server.report(worker, sequence, float(numbers.integers(-21, 22)))


def state_of(run: TrainingRun, *, now: float) -> Record:
    """All that a checkpoint would keep, but for the clock, for who follows, and for what differs by epoch."""
    record = run.record(now=now)
    ledger = {name: msgspec.structs.replace(account, durable=0) for name, account in record.ledger.items()}
    progress = msgspec.structs.replace(record.progress, minutes=0.0, best_saved=None)
    return msgspec.structs.replace(record, progress=progress, ledger=ledger, standby="", primary="", lineage=LINEAGE)


def are_alike(one: TrainingRun, other: TrainingRun, *, now: float) -> bool:
    ours, theirs = one.weights.vectors(), other.weights.vectors()
    return (
        ours.keys() == theirs.keys()
        and all(torch.equal(ours[name], theirs[name]) for name in ours)
        and state_of(one, now=now) == state_of(other, now=now)
    )


def the_run(server: WithStandby) -> TrainingRun:
    assert server.standby.run is not None
    return server.standby.run


def refusal(effects: Any) -> messages.Refused:
    message = only(Send, effects).message
    assert isinstance(message, messages.Refused)
    return message


@pytest.mark.parametrize("optimizer", OPTIMIZER_SETTINGS)
def test_a_standby_that_takes_over_goes_on_as_the_primary_would_have(optimizer: str) -> None:
    server = WithStandby.seeded(workers=("a", "b"), optimizer={"name": optimizer}, **Q_LEARNING)
    train(server, range(1, 10))
    server.pass_time(1.0)
    train(server, range(10, 60))
    assert are_alike(the_run(server), server.run, now=server.now)
    assert the_run(server).weights.target_version == server.run.weights.target_version > 1
    server.silence(TAKEOVER_SECONDS + 0.5)
    for worker in ("a", "b"):
        server.ask_standby(server.witness(worker), peer=worker)
    assert server.standby.server is not None
    primary, server.machine = server.machine, server.standby.server
    server.applied.clear()
    train(server, range(60, 90))
    successor, server.machine = server.machine, primary
    train(server, range(60, 90))
    assert successor.run is not None
    # Versions of the primary's epoch are none of the successor's: both have pushed with those of their own.
    assert are_alike(successor.run, server.run, now=server.now)


def test_a_standby_repeats_a_round_as_one_update() -> None:
    server = WithStandby.following(consistency={"rule": "sync"}, optimizer={"name": "rmsprop"})
    for sequence in (1, 2, 3):
        server.say("a", server.push_of(sequence), encoded([1, 2, 3]))
        server.say("b", server.push_of(sequence), encoded([5, -2, 3]))
    assert server.machine.version == 4
    assert are_alike(the_run(server), server.run, now=server.now)


def test_while_the_primary_lives_a_worker_is_sent_there() -> None:
    server = WithStandby.following()
    for message in (server.hello_of("a"), messages.Pull(request=9), messages.CheckpointRequest(request=9)):
        told = refusal(server.ask_standby(message))
        assert (told.code, told.request) == ("standby", message.request)
        assert PRIMARY in told.reason
    server.silence(TAKEOVER_SECONDS - 0.25)
    assert refusal(server.ask_standby(server.hello_of("a"))).code == "standby"


def test_a_standby_that_was_paused_reads_the_primary_first() -> None:
    """The worker's question may be read before what the primary has said meanwhile."""
    server = WithStandby.following()
    server.now += 30.0
    assert refusal(server.ask_standby(server.hello_of("a"))).code == "standby"
    server.standby.was_away(30.0, now=server.now)
    server.from_standby(server.standby.tick(now=server.now))
    assert refusal(server.ask_standby(server.hello_of("a"))).code == "standby"
    server.silence(1.5)
    server.ask_standby(server.witness("a"))
    assert server.standby.server is not None


def test_while_a_standby_was_paused_the_promises_of_the_primary_ran_out() -> None:
    """Its own clock stood still; the primary may have gone on without it."""
    server = WithStandby.following()
    server.silence(0.5)
    assert server.standby.holds_every_durable_push(now=server.now)
    server.standby.was_away(LEASE_SECONDS, now=server.now)
    assert not server.standby.holds_every_durable_push(now=server.now)


def test_nobody_but_a_worker_that_wants_to_join_calls_a_standby_to_its_place() -> None:
    server = WithStandby.following()
    server.silence(2.0)
    assert refusal(server.ask_standby(messages.Pull(request=1))).code == "standby"
    stranger = server.hello_of("a", **later(run_id="another"))
    assert refusal(server.ask_standby(stranger)).code == "standby", "it belongs to another run"
    assert server.standby.server is None


def test_it_takes_over_in_a_later_epoch_saves_at_once_and_says_what_is_settled() -> None:
    server = WithStandby.following()
    server.push("a", 1)
    server.silence(2.0)
    effects = server.ask_standby(server.witness("a"))
    welcome = only(Send, effects).message
    assert isinstance(welcome, messages.Welcome)
    assert welcome.epoch > EPOCH
    assert (welcome.run_id, welcome.version, welcome.settled_through) == (RUN_ID, 2, 1)
    assert only(SaveCheckpoint, effects).record.lineage.epoch == welcome.epoch
    assert notes(effects)[0] == f"{PRIMARY} has not served the run for 2.0 s: promoted at version 2"


def test_nothing_is_durable_at_the_new_server_before_its_own_first_checkpoint() -> None:
    server = WithStandby.following()
    server.push("a", 1)
    server.save_and_complete()
    server.silence(2.0)
    server.ask_standby(server.witness("a"))
    assert server.standby.server is not None
    assert server.standby.server.run is not None
    ledger = server.standby.server.run.ledger
    assert (ledger.accounts["a"].through, ledger.accounts["a"].durable) == (1, 0)
    server.standby.server.checkpoint_saved("here")
    assert ledger.accounts["a"].durable == 1


# -- what it must not lose --------------------------------------------------------------------------------------------


def went_on_alone(server: WithStandby) -> None:
    """The standby is cut off; the primary applies two more pushes, and saves them."""
    server.is_cut = True
    server.push("a", 1)
    server.push("a", 2)
    server.pass_time(LEASE_SECONDS + 1.0)
    server.save_and_complete()
    assert server.heartbeat("a").durable == 2


def test_a_standby_that_was_cut_off_does_not_lose_what_the_primary_did_without_it() -> None:
    server = WithStandby.following()
    went_on_alone(server)
    told = refusal([one for one in server.ask_standby(server.witness("a", oldest=3)) if isinstance(one, Send)])
    assert told.code == "lacking"
    assert "2 pushes that a has dropped" in told.reason
    assert "ps-server --resume" in told.reason
    assert server.standby.server is None


def test_the_status_says_in_sync_once_a_killed_primary_is_replaced_at_once() -> None:
    server = WithStandby.seeded(workers=("a", "b"))
    assert isinstance(server, WithStandby)
    server.from_standby(server.standby.tick(now=server.now))
    phases = []
    while (phase := server.machine.status(now=server.now).standby.phase) != "in sync":  # type: ignore[union-attr]
        phases.append(phase)
        server.pass_time(0.25)
    assert phases == ["catching up", "catching up"], "the standby is told, and then it says that it was"
    server.silence(1.0)
    server.ask_standby(server.witness("a", oldest=1))
    assert server.standby.server is not None


def test_a_stranger_that_claims_to_have_dropped_pushes_holds_up_no_promotion() -> None:
    server = WithStandby.following()
    server.silence(2.0)
    stranger = server.hello_of("stranger", oldest=1000, served_seconds=0.0, silent_seconds=1000.0)
    assert refusal(server.ask_standby(stranger, peer="stranger")).code == "standby"
    server.ask_standby(server.witness("a"))
    assert server.standby.server is not None


@pytest.mark.parametrize("code", ["not_following", "fell_behind"])
def test_a_server_of_another_run_does_not_renew_a_promise_that_has_ended(code: str) -> None:
    server = WithStandby.following()
    other = messages.Refused(request=1, code=code, reason="the primary lives, and goes on without it")
    server.from_standby(server.standby.receive_from_primary(other, now=server.now))
    server.silence(2.0)
    assert not server.standby.holds_every_durable_push(now=server.now)
    anew = messages.Refused(request=1, code="other_run", reason="begun anew")
    server.from_standby(server.standby.receive_from_primary(anew, now=server.now))
    server.silence(2.0)
    holds = server.standby.holds_every_durable_push(now=server.now)
    assert holds is (code == "not_following"), "another run's server said so"


def test_a_worker_that_keeps_nothing_does_not_prevent_a_standby_that_has_all_that_is_durable() -> None:
    """Its last push had not arrived there; with --resend-mib 0 that is its own risk, and it is said."""
    server = WithStandby.following()
    server.is_cut = True
    server.push("a", 1)
    server.silence(1.5)
    effects = server.ask_standby(server.witness("a", oldest=2))
    assert server.standby.server is not None
    assert "a has dropped 1 pushes that this server lacks" in notes(effects)


# -- what it says to the primary --------------------------------------------------------------------------------------


def test_an_update_out_of_order_changes_nothing() -> None:
    server = WithStandby.following()
    number = server.machine.run.log.position
    push = messages.Push(request=0, sequence=1, computed_on=1, epoch=EPOCH, schema_hash="x")
    for wrong in (number, number + 2):
        update = messages.Update(request=1, number=wrong, worker_id="a", message=push)
        server.standby.receive_from_primary(update, encoded([1, 1, 1]), now=server.now)
    assert are_alike(the_run(server), server.run, now=server.now)


# -- the old primary --------------------------------------------------------------------------------------------------


def taken_over() -> WithStandby:
    server = WithStandby.following()
    server.silence(2.0)
    server.ask_standby(server.witness("a"))
    assert server.standby.server is not None
    return server


def test_a_standby_that_is_started_again_as_the_server_it_has_become_goes_on_telling_the_old_primary() -> None:
    server = taken_over()
    server.is_cut = False
    became = server.standby.server
    server.standby = server.new_standby(became)
    server.from_standby(server.standby.tick(now=server.now))
    assert server.machine.phase is Phase.FENCED
    assert server.machine.lineage.replaced_by == STANDBY
    assert became is not None
    assert server.machine.lineage.epoch == became.epoch, "it is started again in no epoch before this one"


def test_whoever_listens_where_the_primary_was_ends_nobody_without_the_proof_of_an_epoch() -> None:
    server = taken_over()
    became = server.standby.server
    assert became is not None
    latest = 2**53 - 1
    for run_id, proof in [
        (RUN_ID, ""),
        (RUN_ID, a_lineage(EPOCH).proof),
        (RUN_ID, a_lineage(latest, "another").proof),
        ("another", a_lineage(latest).proof),
    ]:
        leading = messages.Leading(request=9, run_id=run_id, epoch=latest, epoch_proof=proof)
        with row(leading):
            assert server.standby.receive_from_primary(leading, now=server.now) == []
            assert became.phase is Phase.SERVING


def test_a_reply_without_the_proof_of_its_epoch_confirms_nothing_to_a_standby() -> None:
    server = WithStandby.following()
    server.silence(2.0)
    (beat, *_), confirmed = server.standby.following._beats, server.standby.following.promise.confirmed
    leading = messages.Leading(request=beat, run_id=RUN_ID, epoch=EPOCH, durable_through=1)
    server.standby.receive_from_primary(leading, now=server.now)
    assert server.standby.following.promise.confirmed == confirmed


# -- a server that was started anew where the primary was -------------------------------------------------------------


def started_anew(server: WithStandby, *, is_seeded: bool) -> WithStandby:
    """The primary was killed, and the same command has begun another run at its address."""
    anew = WithStandby(run_id="another", now=server.now)
    anew.standby = server.standby
    if is_seeded:
        anew.hello("stranger")
        anew.seed("stranger")
    return anew


def test_the_end_of_another_run_at_the_address_of_the_primary_does_not_end_its_standby() -> None:
    anew = started_anew(WithStandby.following(), is_seeded=True)
    anew.pass_time(2.0)
    stop = messages.Stop(reason="another run is over")
    assert not [one for one in anew.standby.receive_from_primary(stop, (), now=anew.now) if isinstance(one, Exit)]
    assert the_run(anew).lineage.run_id == RUN_ID


def test_a_server_gives_no_state_to_a_standby_that_holds_another_run() -> None:
    server = WithStandby.seeded()
    told = server.refusal("x", messages.Follow(request=1, address="x:1", run_id="another"))
    assert told.code == "other_run"
    assert "x:1" in told.reason
    assert "another" in told.reason


def test_a_server_without_weights_begins_no_run_beside_that_of_the_standby_that_took_over() -> None:
    anew = started_anew(taken_over(), is_seeded=False)
    anew.hello("stranger")
    anew.from_standby(anew.standby.tick(now=anew.now + 1.0))
    assert anew.machine.phase is Phase.EMPTY, "a worker has joined: nobody ends that without a proof"
    anew.pass_time(2 * LEASE_SECONDS)
    assert anew.machine.ending.gives_way_to == STANDBY
    remedy = f"to begin a new run, end that one (ps-ctl stop --server {STANDBY}) or take another --port"
    assert anew.machine.ending.fenced.endswith(remedy)
    seed = messages.Seed(request=anew.next_request(), schema=SCHEMA.specs)
    assert anew.refusal("stranger", seed, encoded([0, 0, 0])).code == "fenced"


def test_without_an_admins_key_nobody_makes_a_server_give_way() -> None:
    server = WithStandby()
    fence = messages.Fence(request=1, address="x:1", **later(run_id="another"))
    effects = server.machine.receive(b"x", fence, now=server.now, sender=Sender(key="k", is_admin=False))
    assert refusal(effects).code == "not_admin"
    assert server.machine.phase is Phase.EMPTY


def test_a_server_of_another_run_is_left_in_peace() -> None:
    server = taken_over()
    other = WithStandby(TrainingRun(a_run(), a_lineage(run_id="another")), epoch=EPOCH, run_id="another")
    other.hello("a")
    other.seed("a")
    other.standby = server.standby
    other.from_standby(other.standby.tick(now=server.now))
    assert other.machine.phase is Phase.SERVING
    assert server.standby.server is not None
    assert server.standby.server.phase is Phase.SERVING


def not_in_sync() -> WithStandby:
    """The primary has dropped the standby, and went on; the network hides it from the standby for two seconds."""
    server = WithStandby.following()
    server.push("a", 1)
    dropped = messages.Refused(request=1, code="fell_behind", reason="too slow")
    server.from_standby(server.standby.receive_from_primary(dropped, now=server.now))
    server.silence(2.0)
    return server


def test_what_one_worker_has_dropped_no_other_makes_a_standby_forget() -> None:
    server = not_in_sync()
    effects = server.ask_standby(server.witness("late", oldest=3), peer="late")
    assert refusal([one for one in effects if isinstance(one, Send)]).reason.count("2 pushes that late has dropped")
    server.silence(20.0)
    assert refusal(server.ask_standby(server.witness("a"))).code == "lacking"
    assert server.standby.server is None


def test_an_old_primary_that_comes_back_is_fenced() -> None:
    server = taken_over()
    server.is_cut = False
    server.from_standby(server.standby.tick(now=server.now))
    assert server.machine.phase is Phase.FENCED
    assert f"ps-server --standby-of {STANDBY}" in server.machine.ending.fenced
    assert server.machine.save(now=server.now) == [], "its checkpoints are not touched"


def test_a_claim_of_a_later_epoch_without_its_proof_keeps_no_standby_from_taking_over() -> None:
    server = WithStandby.following()
    server.silence(2.0)
    forged = later(10**15) | {"epoch_proof": a_lineage(EPOCH).proof}
    assert refusal(server.ask_standby(server.hello_of("b", **forged), peer="b")).code == "standby"
    server.ask_standby(server.witness("a"))
    assert server.standby.server is not None


def test_a_run_that_was_begun_is_not_ended_by_the_successor_of_another() -> None:
    anew = started_anew(taken_over(), is_seeded=True)
    anew.from_standby(anew.standby.tick(now=anew.now + 1.0))
    assert anew.machine.phase is Phase.SERVING
    assert anew.push("stranger", 1).verdict == "applied"
