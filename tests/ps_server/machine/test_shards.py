"""One shard as a server: which vectors it takes, what it takes over from shard 1, and which run it belongs to."""

from typing import Any

from ps_common.protocol import messages
from ps_common.protocol.lineage import Lineage, Shard
from ps_common.protocol.messages import Adjust, StopRequest
from ps_common.protocol.tensors import Schema, TensorSpec
from ps_common.settings.run_settings import run_for_peers
from ps_server.machine.parts import Sender
from ps_server.replication.first_shard import END_SECONDS
from ps_server.state.effects import Effect, SendToServer
from ps_server.state.training_run import TrainingRun
from tests.ps_server.transcripts import (
    RUN_ID,
    Transcript,
    a_run,
    encoded,
    exits,
    notes,
    only,
    sends,
)

SCHEMA = Schema([TensorSpec("a", (4, 2)), TensorSpec("seen", (1,), role="statistic")])
ADDRESSES = ("one:1,one:2", "two:1,two:2")
OTHER_RUN = "fedcba9876543210"
HASH = SCHEMA.of_shard(2, 2).hash


def place(number: int) -> Shard:
    return Shard(number=number, addresses=ADDRESSES)


def the_first(**sections: Any) -> Transcript:
    """Shard 1 of two."""
    return Transcript(a_run(**sections), shard=place(1))


def the_second(first: Transcript | None = None, **fields: Any) -> Transcript:
    """Shard 2 of two; in touch with `first` if that is given."""
    second = Transcript(shard=place(2), **fields)
    if first is not None:
        ask(second, first)
    return second


def ask(second: Transcript, first: Transcript) -> list[Effect]:
    """Shard 2 asks what is new at shard 1, whose reply has these effects."""
    sent = only(SendToServer, second.after(0.25))
    assert sent.to == ADDRESSES[0], "shard 1 and its standby, as one of them serves"
    first.now = second.now
    for send in sends(first.say("shard 2", sent.message)):
        second.effects = second.machine.receive_from_first_shard(send.message, now=second.now)
    return second.effects


def a_pair(**sections: Any) -> tuple[Transcript, Transcript]:
    """Both shards, seeded by worker "w"."""
    first = the_first(**sections)
    second = the_second(first)
    first.hello("w")
    first.seed("w", [0] * 4, SCHEMA)
    second.hello("w", first_shard=RUN_ID, number=0)
    second.seed("w", [0] * 5, SCHEMA)
    return first, second


def restored(second: Transcript) -> Transcript:
    """Shard 2, resumed from a checkpoint of this moment, and not yet in touch with shard 1."""
    kept = second.save()
    run = TrainingRun.restored(kept.vectors, kept.record, now=second.now)
    run.lineage = run.lineage.resumed(draw=0)
    return Transcript(run, shard=place(2), now=second.now)


def push(second: Transcript, sequence: int) -> list[Effect]:
    """Shard 2 gets a push of "w", whose reply may come later."""
    return second.say("w", second.push_of(sequence, schema_hash=HASH), encoded([1] * 5))


def adjust(first: Transcript, **settings: Any) -> None:
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    first.answer(messages.Adjusted, "ps-ctl", Adjust(request=first.next_request(), settings=dotted, by="ps-ctl"))


# -- joining ----------------------------------------------------------------------------------------------------------


def test_a_stranger_that_comes_first_does_not_decide_to_which_run_a_shard_belongs() -> None:
    second = the_second()
    assert second.refusal("stranger", second.hello_of("stranger", first_shard=OTHER_RUN)).code == "standby"
    ask(second, the_first())
    assert second.refusal("stranger", second.hello_of("stranger", first_shard=OTHER_RUN)).code == "other_run"
    assert second.hello("w", first_shard=RUN_ID).first_shard == RUN_ID


def test_a_shard_takes_seeds_and_pushes_of_its_range_alone() -> None:
    second = the_second(the_first())
    second.hello("w", first_shard=RUN_ID)
    whole = messages.Seed(request=90, schema=SCHEMA.specs)
    assert second.refusal("w", whole, encoded([0] * 9)).code == "wrong_size"
    second.seed("w", [0] * 5, SCHEMA)
    assert second.hello("w", first_shard=RUN_ID).schema == SCHEMA.specs
    assert second.push("w", 1, [1, 2, 3, 4, 5], schema_hash=HASH).verdict == "applied"
    assert second.weights() == [-1, -2, -3, -4, 5]
    assert second.push("w", 2, [1] * 5, schema_hash=SCHEMA.hash).code == "schema_mismatch"
    assert second.push("w", 3, [1] * 5, schema_hash=SCHEMA.of_shard(1, 2).hash).code == "schema_mismatch"


def test_workers_whose_first_shard_is_of_another_run_are_refused() -> None:
    second = the_second(the_first())
    second.hello("w", first_shard=RUN_ID)
    refused = second.refusal("v", second.hello_of("v", first_shard=OTHER_RUN))
    assert refused.code == "other_run"
    assert f"shard 2/2 here belongs to run {RUN_ID}, and shard 1 of v to run {OTHER_RUN}" in refused.reason


def test_a_shard_that_lost_its_folder_takes_weights_of_a_worker_that_trained_and_no_first_ones() -> None:
    first = a_pair()[0]
    first.push("w", 1, [1] * 4, schema_hash=SCHEMA.of_shard(1, 2).hash)
    second = the_second(first)
    refused = second.refusal("v", second.hello_of("v", first_shard=RUN_ID))
    assert refused.code == "other_run"
    assert "shard 2/2 has no weights, though shard 1 is at step 20: was its folder lost?" in refused.reason
    second.hello("w", first_shard=RUN_ID, incarnation=1)
    assert second.seed("w", [7] * 5, SCHEMA).accepted


# -- settings ---------------------------------------------------------------------------------------------------------


def test_a_shard_has_no_run_before_shard_1_has_one() -> None:
    first = Transcript(shard=place(1))
    second = the_second(first)
    refused = second.refusal("w", second.hello_of("w", first_shard=RUN_ID, proposed_run=a_run().to_dict()))
    assert refused.code == "standby", "the worker tries again soon"
    assert "shard 2/2 has no reply of shard 1 (one:1,one:2) yet" in refused.reason
    proposed = a_run(schedule={"learning_rate": 0.25})
    first.hello("w", proposed_run=proposed.to_dict())
    ask(second, first)
    assert second.hello("w", first_shard=RUN_ID, proposed_run={}).run == run_for_peers(proposed)


def test_what_is_adjusted_at_shard_1_holds_at_the_others_with_its_step() -> None:
    first, second = a_pair(schedule={"learning_rate": 1.0, "anneal_steps": 1000})
    first.push("w", 1, [1] * 4, schema_hash=SCHEMA.of_shard(1, 2).hash)
    adjust(first, schedule__learning_rate=0.5, budget__max_steps=900, checkpoint_seconds=7.0)
    assert notes(ask(second, first)) == ["has the settings of shard 1: version 3, at step 20 there"]
    assert second.run.spec == first.run.spec
    assert second.run.spec.schedule.anneal_start == 20
    assert second.run.adjustments == first.run.adjustments
    assert second.machine.checkpoints.every_seconds == 7.0
    assert notes(ask(second, first)) == [], "nothing is new"
    adjust(first, drained=True)
    ask(second, first)
    assert second.hello("w", first_shard=RUN_ID).drained
    assert second.refusal("v", second.hello_of("v", first_shard=RUN_ID)).code == "drained"


def test_other_settings_of_a_shard_have_no_effect_and_are_named() -> None:
    overrides = {"schedule.learning_rate": 0.125, "budget.max_steps": 0}
    second = the_second(overrides=overrides)
    first = the_first(schedule={"learning_rate": 0.5})
    said = notes(ask(second, first))
    assert second.run.spec == first.run.spec
    assert said[1:] == [
        "the settings of all shards are those of shard 1: --learning-rate 0.125 contradicts this run, which was "
        "started with 0.5; remove the flag"
    ]
    assert notes(ask(second, first)) == []


def test_a_resumed_shard_applies_nothing_before_it_knows_what_shard_1_has_decided_meanwhile() -> None:
    first, second = a_pair()
    resumed = restored(second)
    adjust(first, schedule__learning_rate=0.5)
    resumed.hello("w", first_shard=RUN_ID)
    push(resumed, 1)
    assert resumed.machine.version == 1
    ask(resumed, first)
    assert resumed.weights() == [-0.5, -0.5, -0.5, -0.5, 1]
    resumed.after(3600.0)
    push(resumed, 2)
    assert resumed.machine.version == 3, "from then on it goes on without shard 1"


def test_a_shard_resumed_with_other_settings_of_the_optimizer_at_shard_1_has_them_and_keeps_its_slots() -> None:
    momentum = {"name": "momentum", "momentum": 0.5}
    second = a_pair(optimizer=momentum)[1]
    push(second, 1)
    resumed = the_first(optimizer=momentum | {"momentum": 0.0})
    ask(second, resumed)
    assert second.weights() == [-1, -1, -1, -1, 1]
    push(second, 2)
    assert second.weights() == [-2, -2, -2, -2, 2]


def test_shard_1_of_another_run_or_of_other_shards_is_not_followed() -> None:
    second = a_pair()[1]
    resumed = restored(second)
    resumed.hello("w", first_shard=RUN_ID)
    other = Transcript(a_run(schedule={"learning_rate": 0.5}), run_id=OTHER_RUN, shard=place(1))
    other.run.first_shard = OTHER_RUN
    assert notes(ask(resumed, other)) == [
        f"shard 2/2 belongs to run {RUN_ID}, and shard 1 at one:1,one:2 serves run {OTHER_RUN}: --shards must name the "
        "shards of one run"
    ]
    assert notes(ask(resumed, other)) == [], "it is said once"
    push(resumed, 1)
    assert resumed.machine.version == 1
    third = Transcript(a_run(), shard=Shard(number=2, addresses=("three:1", "one:1")))
    third.run.first_shard = RUN_ID
    assert notes(ask(resumed, third)) == [
        "the server at one:1,one:2 is shard 2/2 of --shards three:1 one:1, and this one is shard 2/2 of --shards "
        "one:1,one:2 two:1,two:2: give all servers of a run the same --shards, in the same order"
    ]


# -- the end ----------------------------------------------------------------------------------------------------------


def test_a_shard_ends_with_no_other_server_than_its_shard_1() -> None:
    second = a_pair()[1]
    second.machine.receive_from_first_shard(messages.Stop(reason="over"), now=second.now)
    for other in (
        Transcript(a_run(), shard=Shard(number=1, addresses=("one:1", "three:1"))),
        Transcript(TrainingRun(a_run(), Lineage.begun(OTHER_RUN, secret="s", draw=0, shard=place(1))), shard=place(1)),
        Transcript(run_id=OTHER_RUN, shard=place(1)),
    ):
        other.say("ps-ctl", StopRequest(request=7))
        ask(second, other)
        assert second.refusal("v", second.hello_of("v", first_shard=RUN_ID)).code == "other_run"
        assert second.machine.phase.value == "serving"


def test_a_shard_that_cannot_go_on_ends_the_run_and_waits_until_shard_1_knows() -> None:
    first, second = a_pair()
    second.machine.reload_failed("it has no checkpoints", now=second.now)
    second.machine.checkpoint_saved("last.safetensors")
    second.goodbye("w")
    assert sends(ask(second, first)) == []
    reason = "shard 2/2: the weights hold NaN or Inf, and there is nothing to go back to: it has no checkpoints"
    assert first.machine.status(now=first.now).ending == reason
    assert exits(second.effects) == [], "its workers are still at shard 1"
    first.goodbye("w")
    ask(second, first)
    assert len(exits(second.after(0.1))) == len(exits(first.after(0.1))) == 1


def test_in_a_locked_run_a_shard_needs_the_key_of_an_admin_to_end_it() -> None:
    first = a_pair()[0]
    told = messages.RunRequest(request=1, shard=2, first_shard=RUN_ID, ending="no weights")
    (send,) = sends(first.machine.receive(b"x", told, now=first.now, sender=Sender(key="k", is_admin=False)))
    assert isinstance(send.message, messages.Refused)
    assert send.message.code == "not_admin"
    assert first.machine.phase.value == "serving"


def test_a_shard_ends_when_shard_1_has_ended_and_its_workers_have_left() -> None:
    first, second = a_pair()
    first.answer(messages.Stopping, "ps-ctl", StopRequest(request=7, reason="enough"))
    assert sends(ask(second, first)) == []
    assert second.machine.phase.value == "serving", "the worker's last push may be on its way"
    push(second, 1)
    second.goodbye("w")
    first.goodbye("w")
    assert exits(first.after(1.0)) == [], "shard 2 does not know it yet"
    ask(second, first)
    assert second.machine.status(now=second.now).ending == "enough"
    assert len(exits(first.after(0.1))) == len(exits(second.after(0.1))) == 1
    assert second.machine.version == 2


def test_a_shard_that_has_counted_all_steps_waits_for_shard_1_to_end_the_run() -> None:
    """If shard 1 lacks a push, the run goes on until it has enough."""
    first, second = a_pair(budget={"max_steps": 40})
    for sequence in (1, 2, 3):
        push(second, sequence)
    assert second.run.progress.global_steps == 40
    assert second.machine.phase.value == "serving"
    second.after(END_SECONDS + 0.1)
    assert second.run.progress.global_steps == 60
    for sequence in (1, 2):
        first.push("w", sequence, [1] * 4, schema_hash=SCHEMA.of_shard(1, 2).hash)
    first.goodbye("w")
    ask(second, first)
    assert second.machine.status(now=second.now).ending == "max_steps 40 reached"


# -- files ------------------------------------------------------------------------------------------------------------
