"""Hypothesis strategies for our structs, made from the declarations of their fields."""

import functools
from functools import partial
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from ps_common.protocol.lineage import Shard
from ps_common.protocol.names import ImportPath
from ps_common.settings.custom_algorithm import custom_algorithm
from ps_common.settings.run_spec import ActionValuesSettings, CustomAlgorithmSettings

PRINTABLE = st.characters(min_codepoint=32, max_codepoint=126)  # what peers may say
OWN = {"unroll_length": 5, "temperature": 0.5, "is_on": True, "words": ("a", "b"), "sizes": (1, 2.5)}
PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(PRINTABLE, max_size=8)


@functools.cache
def values_of(declared: Any) -> st.SearchStrategy[Any]:
    """Valid values of a type, such as one of our structs. Small ones; no NaN, so that they can be compared."""
    return _values(inspect.type_info(declared))


def _values(info: inspect.Type) -> st.SearchStrategy[Any]:
    match info:
        case inspect.Metadata():
            return _values(info.type)
        case inspect.AnyType():
            return (
                PLAIN | st.lists(PLAIN, max_size=3) | st.dictionaries(st.text(PRINTABLE, max_size=8), PLAIN, max_size=3)
            )
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(0 if info.ge is None else info.ge, 2**62 if info.le is None else info.le)
        case inspect.FloatType():
            low, high = (info.gt if info.ge is None else info.ge), (info.lt if info.le is None else info.le)
            return st.floats(
                low, high, exclude_min=info.gt is not None, exclude_max=info.lt is not None, allow_nan=False
            )
        case inspect.StrType():
            letters = st.characters(codec="utf-8")
            least, most = info.min_length or 0, max(info.min_length or 0, min(info.max_length or 12, 12))
            if info.pattern:
                matching = st.from_regex(info.pattern, alphabet=letters)
                return matching.filter(lambda text: least <= len(text) <= (info.max_length or len(text)))
            return st.text(PRINTABLE, min_size=least, max_size=most)
        case inspect.BytesType():
            return st.binary(max_size=12)
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.UnionType():
            return st.one_of(*map(_values, info.types))
        case inspect.TupleType():
            return st.tuples(*map(_values, info.item_types))
        case inspect.VarTupleType():
            return st.lists(_values(info.item_type), max_size=3).map(tuple)
        case inspect.DictType():
            keys, values, least = _values(info.key_type), _values(info.value_type), info.min_length or 0
            return st.dictionaries(keys, values, min_size=least, max_size=3)
        case inspect.StructType():
            if info.cls is CustomAlgorithmSettings:
                return _values(inspect.type_info(ImportPath)).map(
                    partial(custom_algorithm, settings=OWN, source="a test")
                )
            parts = {field.name: _values(field.type) for field in info.fields}
            if issubclass(info.cls, ActionValuesSettings):  # each ε has its probability
                parts["final_epsilons"] = st.tuples(parts["discount"], parts["discount"])
                parts["epsilon_probabilities"] = st.sampled_from([(0.25, 0.75), (1.0, 0.0)])
            if "staleness_counts" in parts:  # one of each bound, or none
                counts = st.lists(st.integers(0, 9), min_size=15, max_size=15).map(tuple)
                parts["staleness_counts"] = st.just(()) | counts
            if info.cls is Shard:  # its number is one of its addresses
                return parts["addresses"].flatmap(
                    lambda given: st.builds(Shard, number=st.integers(1, len(given) or 1), addresses=st.just(given))
                )
            if "kwargs" in parts:  # which only custom parts take
                named = "id" if "id" in parts else "name"
                custom = {
                    named: st.just("my_pkg:Part"),
                    "kwargs": st.just({"size": 5, "of": {"rooms": [0.5, "a"]}}),
                }
                without = st.builds(info.cls, **parts | {"kwargs": st.just({})})
                return without | st.builds(info.cls, **parts | custom)
            return st.builds(info.cls, **parts)
    raise NotImplementedError(info)


def header_of(message: msgspec.Struct) -> dict[str, Any]:
    """The header of a message as a map, before it is packed."""
    header: dict[str, Any] = msgspec.to_builtins(message, builtin_types=(bytes,))
    return header
