from typing import Any

import msgspec
import pytest

from ps_bench.settings import PRESET, target_of
from ps_common.errors import SettingsError
from ps_common.protocol.messages import StatusReply
from ps_common.protocol.status import Status
from ps_common.protocol.tensors import TensorSpec
from ps_common.settings.run_spec import RunSpec

SCHEMA = (TensorSpec("policy", (7, 3)),)
STATUS = Status(
    phase="serving", epoch=1, refused={}, not_modified=0, checkpoint_version=0, checkpoint_failures=0, workers_alive=3
)


def found(run: RunSpec | None, schema: tuple[TensorSpec, ...] = (), **fields: Any) -> StatusReply:
    status = msgspec.structs.replace(STATUS, run_id="51d3", **fields)
    return StatusReply(request=1, status=status, run=run.to_dict() if run else {}, schema=schema)


def test_a_server_without_a_run_gets_one_that_is_made_for_load_tests() -> None:
    target = target_of("a:1", found(None, phase="empty"), parameters=40, disturb=False)
    assert (target.is_own, target.schema.size, target.steps, target.run.preset) == (True, 40, 1, PRESET)
    assert (target.run.budget.max_steps, target.run.budget.max_minutes) == (0, 0)


def test_a_run_of_an_earlier_load_test_is_used_again_with_its_own_size() -> None:
    target = target_of("a:1", found(RunSpec(preset=PRESET), SCHEMA), parameters=40, disturb=False)
    assert (target.is_own, target.schema.size) == (True, 21)


def test_somebodys_training_is_refused_and_named() -> None:
    with pytest.raises(
        SettingsError, match=r"a:1: run 51d3 \(pong on .*\) is somebody's training.*3 workers.*--yes-disturb-this-run"
    ):
        target_of("a:1", found(RunSpec(preset="pong"), SCHEMA), parameters=40, disturb=False)


def test_somebodys_training_that_may_be_disturbed_keeps_its_steps() -> None:
    target = target_of("a:1", found(RunSpec(preset="pong"), SCHEMA), parameters=40, disturb=True)
    assert (target.is_own, target.steps, target.schema.size) == (False, 0, 21)


@pytest.mark.parametrize("disturb", [False, True])
def test_a_run_that_waits_for_its_weights_is_never_begun_with_zeros(disturb: bool) -> None:
    with pytest.raises(SettingsError, match="has no weights yet"):
        target_of("a:1", found(RunSpec(preset="pong"), phase="empty"), parameters=40, disturb=disturb)


@pytest.mark.parametrize(
    ("fields", "why"),
    [({"phase": "standby"}, "standby"), ({"phase": "draining"}, "draining"), ({"paused": True}, "paused")],
)
def test_a_server_that_settles_no_push_is_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        target_of("a:1", found(RunSpec(preset=PRESET), SCHEMA, **fields), parameters=40, disturb=True)
