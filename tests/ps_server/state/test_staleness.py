"""Which stale gradients count, by hand."""

from typing import get_args, get_type_hints

import pytest

from common.settings.run_spec import Staleness
from ps_server.state.guards import Denied
from ps_server.state.staleness import STALENESS_RULES, check_staleness


@pytest.mark.parametrize(
    ("settings", "latest"),
    [
        (Staleness(rule="undamped"), 10**6),
        (Staleness(rule="bounded", max_staleness=3), 3),
        (Staleness(rule="bounded", max_staleness=0), 0),
    ],
    ids=str,
)
def test_a_gradient_up_to_the_bound_counts(settings: Staleness, latest: int) -> None:
    for staleness in {0, latest // 2, latest}:
        check_staleness(staleness, settings)  # raises nothing


@pytest.mark.parametrize(("bound", "staleness"), [(0, 1), (3, 4), (3, 1000)])
def test_a_gradient_beyond_the_bound_is_discarded_and_the_error_names_both_numbers(bound: int, staleness: int) -> None:
    with pytest.raises(Denied, match=f"{staleness} versions late; up to {bound} count") as denied:
        check_staleness(staleness, Staleness(rule="bounded", max_staleness=bound))
    assert denied.value.code == "too_stale"


def test_every_rule_of_the_settings_exists() -> None:
    assert set(get_args(get_type_hints(Staleness)["rule"])) == STALENESS_RULES.keys()
