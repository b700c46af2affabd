"""An exported policy, or a receipt, of any content is taken or refused with a sentence."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from torch import Tensor

from ps_common.errors import CheckpointError, PsRlError
from ps_common.run_folder.policy_file import MODEL
from ps_common.run_folder.trained import trained_in
from rl_eval.policy import Policy
from rl_eval.policy_folder import RECEIPT, read_model
from rl_eval.receipt import read_receipt, verify
from tests.nested import Place, places_in, values, with_value, without
from tests.rows import row

ZOO = Path(__file__).parents[2] / "zoo" / "cartpole-a3c"


def _content() -> tuple[dict[str, Any], dict[str, Tensor]]:
    with safe_open(ZOO / MODEL, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["record"]), tensors


RECORD, TENSORS = _content()
PLACES = list(places_in(RECORD))
GAMES = json.loads((ZOO / RECEIPT).read_text())
GAMES["games"], GAMES["episodes"], GAMES["environments"] = GAMES["games"][:1], 1, 1
GAME_PLACES = list(places_in(GAMES))


def write(folder: Path, text: str, tensors: dict[str, Tensor] = TENSORS, *, number: int = 1) -> Path:
    path = folder / MODEL
    safetensors.torch.save_file(tensors, path, {"format": f"ps-rl policy {number}", "record": text})
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy")


def check_taken_or_refused(folder: Path, record: Any) -> None:
    with contextlib.suppress(PsRlError):
        exported = read_model(write(folder, json.dumps(record)))
        policy = Policy(exported)
        assert 0 <= exported.minutes < 2**53
        policy.act(torch.zeros(exported.spaces.observations.shape).numpy())


@given(at=st.sampled_from([at for at in PLACES if at[:2] != ("run", "network")]), value=values)
def test_a_policy_with_any_field_replaced_is_taken_or_refused(at: Place, value: Any, folder: Path) -> None:
    check_taken_or_refused(folder, with_value(RECORD, at, value))


def test_a_policy_that_lacks_any_field_is_taken_or_refused(folder: Path) -> None:
    for at in PLACES[1:]:
        check_taken_or_refused(folder, without(RECORD, at))


def test_what_a_policy_cannot_hold_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    for at, value, words in [
        (("global_steps",), -1, "global_steps"),
        (("minutes",), "2", "Expected `float`, got `str`"),
        (("spaces", "actions", "numbers"), [0, 1, 2], "the numbers of 3 actions, where there are 2"),
        (("spaces", "actions", "kind"), "dice", "dice"),
        (("spaces", "observations", "dtype"), "object", "object"),
        (("spaces", "observations", "shape"), [2**24, 2**24], "an observation has"),
        (("schema", 0, "shape"), [1], "its tensor"),
    ]:
        with row(at, value, words):
            tmp_path = tmp_path_factory.mktemp("row")
            with pytest.raises(CheckpointError, match="is damaged, because") as raised:
                read_model(write(tmp_path, json.dumps(with_value(RECORD, at, value))))
            assert words in str(raised.value)


@pytest.mark.parametrize(
    "change", [torch.Tensor.bfloat16, torch.Tensor.bool, lambda tensor: tensor / 0, torch.Tensor.long]
)
def test_weights_that_are_no_finite_float32_are_refused(change: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    name = next(iter(TENSORS))
    path = write(tmp_path, json.dumps(RECORD), {**TENSORS, name: change(TENSORS[name])})
    for read in (read_model, trained_in):
        with pytest.raises(CheckpointError, match="is damaged, because"):
            read(path)


@given(at=st.sampled_from(GAME_PLACES), value=values)
def test_a_receipt_with_any_field_replaced_is_verified_or_refused(at: Place, value: Any, folder: Path) -> None:
    (folder / RECEIPT).write_text(json.dumps(with_value(GAMES, at, value)))
    with contextlib.suppress(PsRlError):
        receipt = read_receipt(folder / RECEIPT)
        if at[:1] in (("games",), ("environments",), ("episodes",), ("seed",), ("checksums",), ("versions",)):
            verify(receipt, folder / RECEIPT)
