"""Schemas of plain tensors, for tests that have no network."""

from collections.abc import Mapping

from torch import Tensor

from ps_common.protocol.tensors import Schema, TensorSpec


def schema_of_tensors(tensors: Mapping[str, Tensor]) -> Schema:
    """All of them weights, in their order."""
    return Schema(TensorSpec(name, tuple(tensor.shape)) for name, tensor in tensors.items())
