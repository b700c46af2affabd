"""Which versions are kept for deltas, and within which bound."""

from ps_server.state.weight_store import DeltaBases


def test_the_newest_versions_are_kept_within_the_bound() -> None:
    bases = DeltaBases(5, most_bytes=25)
    for version in (1, 2, 4, 7, 7, 9):
        bases.keep(version, bytes(10))
        assert len(bases) <= 2
    assert [version for version in range(10) if version in bases] == [7, 9]
    assert len(bases) == 2
    assert (bases[9].encoded, bases[9].weights) == (bytes(10), 5)


def test_weights_that_alone_exceed_the_bound_are_not_kept() -> None:
    bases = DeltaBases(5, most_bytes=9)
    bases.keep(1, bytes(10))
    assert 1 not in bases
    assert len(bases) == 0
