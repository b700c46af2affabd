"""Settings of a running run as people type them."""

import pytest

from ps_common.errors import SettingsError
from ps_common.settings.adjustable import settings_in
from tests.rows import row


def test_a_setting_is_named_in_short_and_has_its_own_type() -> None:
    for text, setting, value in [
        ("learning_rate=1e-4", "schedule.learning_rate", 1e-4),
        ("learning-rate=1", "schedule.learning_rate", 1.0),
        ("schedule.learning_rate = 0.5", "schedule.learning_rate", 0.5),
        ("entropy_weight=0", "algorithm.entropy_weight", 0.0),
        ("final_epsilon=0.05", "algorithm.final_epsilon", 0.05),
        ("max_steps=1e6", "budget.max_steps", 1_000_000),
        ("max_steps=1_000", "budget.max_steps", 1000),
        ("until_return=none", "budget.until_return", None),
        ("until_return=-19.5", "budget.until_return", -19.5),
        ("paused=yes", "paused", True),
        ("paused=off", "paused", False),
    ]:
        with row(text, setting, value):
            settings = settings_in([text])
            assert settings == {setting: value}
            assert type(settings[setting]) is type(value)


@pytest.mark.parametrize(
    ("texts", "advice"),
    [
        (["learning_rate"], "must be SETTING=VALUE; settings are "),
        (["learning_rate=nan"], "schedule.learning_rate: nan: expected `float` >= 0.0"),
        (["learning_rate=inf"], "inf: expected `float` <= 1000000000000.0"),
        (["learning_rate=fast"], "fast: expected `float`, got `str`"),
        (["learning_rate=1", "schedule.learning_rate=2"], "is given twice"),
        (["lerning_rate=1"], "did you mean schedule.learning_rate"),
        (["paused=2"], "paused: 2: expected `bool`, got `int`"),
        (["max_steps=\x1b[2J"], ": expected `int`, got `str`"),
        (["=1"], "cannot be adjusted"),
    ],
)
def test_a_mistake_is_told_with_what_is_allowed(texts: list[str], advice: str) -> None:
    with pytest.raises(SettingsError) as error:
        settings_in(texts)
    assert advice in str(error.value)
    assert "\x1b" not in str(error.value)
