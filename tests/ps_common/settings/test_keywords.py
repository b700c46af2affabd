"""Settings as keywords: the values that a Python program has at hand are those of a file."""

import enum
from pathlib import Path

import numpy as np
import pytest
import torch

from ps_common.errors import SettingsError
from ps_common.settings.run_settings import plain, with_keywords
from ps_common.settings.run_spec import RunSpec
from tests.rows import row


class Rule(enum.Enum):
    ADAM = "adam"


class Count(enum.IntEnum):
    TWO = 2


def test_a_value_of_another_library_is_the_plain_one() -> None:
    for keywords, expected in [
        ({"learning_rate": np.float64(0.5)}, 0.5),
        ({"learning_rate": np.float32(0.25)}, 0.25),
        ({"learning_rate": torch.tensor(0.25)}, 0.25),
        ({"max_steps": np.int64(600)}, 600),
        ({"seed": np.uint8(3)}, 3),
        ({"seed": Count.TWO}, 2),
        ({"layer_norm": np.bool_(True)}, True),
        ({"hidden": (32, np.int32(16))}, (32, 16)),
        ({"hidden": np.array([32, 16])}, (32, 16)),
        ({"environment": Path("CartPole-v1")}, "CartPole-v1"),
        ({"environment": np.str_("CartPole-v1")}, "CartPole-v1"),
        ({"optimizer": Rule.ADAM}, "adam"),
    ]:
        with row(keywords, expected):
            run, changed = with_keywords(RunSpec(), keywords, source="train")
            (value,) = changed.values()
            assert value == expected
            assert type(value) in (float, int, bool, str, tuple)
            assert run != RunSpec()


class Own:
    """Somebody's environment, given itself where its import path belongs."""


def test_an_object_is_refused_and_the_sentence_says_what_a_setting_is() -> None:
    for value in [Own, Own(), len, range(3), {Own(): 1}]:
        with (
            row(value),
            pytest.raises(SettingsError, match=r"^train: environment is .*; a setting is a number.* as my_env:Env$"),
        ):
            plain({"seed": 1, "environment": value}, source="train")
