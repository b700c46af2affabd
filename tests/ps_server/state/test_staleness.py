"""The damping of stale gradients, by hand."""

from typing import get_args, get_type_hints

import pytest

from common.settings.run_spec import Staleness
from ps_server.state.guards import Denied
from ps_server.state.staleness import STALENESS_RULES, damping


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (Staleness(rule="undamped"), {0: 1.0, 1: 1.0, 7: 1.0, 10**6: 1.0}),
        (Staleness(rule="bounded", max_staleness=3), {0: 1.0, 1: 1.0, 3: 1.0}),
        (Staleness(rule="bounded", max_staleness=0), {0: 1.0}),
    ],
    ids=str,
)
def test_a_rule_gives_the_factor_on_the_learning_rate(settings: Staleness, expected: dict[int, float]) -> None:
    assert {staleness: damping(staleness, settings) for staleness in expected} == expected


@pytest.mark.parametrize(("bound", "staleness"), [(0, 1), (3, 4), (3, 1000)])
def test_a_gradient_beyond_the_bound_is_discarded_and_the_error_names_both_numbers(bound: int, staleness: int) -> None:
    with pytest.raises(Denied, match=f"{staleness} versions late; up to {bound} count") as denied:
        damping(staleness, Staleness(rule="bounded", max_staleness=bound))
    assert denied.value.code == "too_stale"


def test_every_rule_of_the_settings_exists() -> None:
    assert set(get_args(get_type_hints(Staleness)["rule"])) == STALENESS_RULES.keys()
