"""Rate limits of peers that come without end."""

from ps_server.machine.allowances import RateLimits


def test_limits_that_are_full_again_are_forgotten_and_no_more_than_the_most_are_kept() -> None:
    limits = RateLimits(3)
    allowed = [limits.allows("a", at_once=2, per_second=0.1, now=0.0) for _ in range(3)]
    assert allowed == [True, True, False]
    assert limits.allows("b", at_once=2, per_second=0.1, now=19.0)
    assert len(limits) == 2, "a has 1.9 of 2"
    assert limits.allows("b", at_once=2, per_second=0.1, now=20.0)
    assert len(limits) == 1, "a is as good as new"
    for who in "cdefg":
        limits.allows(who, at_once=2, per_second=0.1, now=20.0)
    assert len(limits) == 3
