"""Nested plain values, for tests of what reads files of any content: every place in them, and other values for it."""

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Place = tuple[Any, ...]

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_subnormal=False)
    | st.text()
    | st.sampled_from([2**53, -1, 1e308, "NaN"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def places_in(value: Any, at: Place = ()) -> Iterator[Place]:
    """The keys that lead to each value in nested ones; of a long list to its first elements."""
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value[:5]) if isinstance(value, list) else ()
    for key, inner in inside:
        yield from places_in(inner, (*at, key))


def with_value(plain: Any, at: Place, value: Any) -> Any:
    """A copy that has this value there."""
    if not at:
        return value
    changed = copy.deepcopy(plain)
    _before(changed, at)[at[-1]] = value
    return changed


def without(plain: Any, at: Place) -> Any:
    """A copy that has nothing there."""
    changed = copy.deepcopy(plain)
    del _before(changed, at)[at[-1]]
    return changed


def _before(place: Any, at: Place) -> Any:
    for key in at[:-1]:
        place = place[key]
    return place
