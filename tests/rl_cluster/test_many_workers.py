"""The flags that the workers of one machine share."""

import pytest

from rl_cluster.many_workers import PARENTS_FLAGS, without


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("--server a:1 --workers auto", "--server a:1"),
        ("--workers=4 --server a:1 --name=left --seed 3", "--server a:1 --seed 3"),
        ("--name workers --server a:1", "--server a:1"),
        ("--import a b --workers 2", "--import a b"),
    ],
)
def test_children_get_every_flag_but_those_of_the_parent(given: str, kept: str) -> None:
    assert without(given.split(), PARENTS_FLAGS) == kept.split()
