"""The tensors of a caller, by name, as one vector: of any library, type and layout in memory that has real numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ps_common.errors import SchemaMismatch
from ps_common.protocol.tensors import Schema


def flat(schema: Schema, tensors: Mapping[str, Any]) -> Tensor:
    """A vector [P] of the tensors, None as zeros. Raises SchemaMismatch that names the first that does not fit."""
    if unknown := tensors.keys() - {spec.name for spec in schema.specs}:
        raise SchemaMismatch(
            f"this run has no tensor {min(unknown)!r}, only {', '.join(spec.name for spec in schema.specs)}"
        )
    vector = torch.zeros(schema.size)
    for name, view in schema.views(vector).items():
        if name not in tensors:
            raise SchemaMismatch(f"tensor {name!r} is missing; None stands for zeros")
        if tensors[name] is not None:
            tensor = float32(name, tensors[name])
            if tensor.shape != view.shape:
                raise SchemaMismatch(f"tensor {name!r} has shape {list(tensor.shape)}, not {list(view.shape)}")
            view.copy_(tensor)
    return vector


def float32(name: str, value: Any) -> Tensor:
    """A tensor of the caller's as float32 on the CPU. Raises SchemaMismatch for what has no real numbers."""
    try:
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
            # torch takes no negative strides, foreign byte orders and read-only memory.
            with np.errstate(over="ignore"):
                value = np.require(value, np.float32, ["C", "W"])
        tensor = torch.as_tensor(value).detach()
        if not tensor.is_complex():
            return tensor.to("cpu", torch.float32).to_dense()
    except (TypeError, ValueError, RuntimeError) as error:
        raise SchemaMismatch(f"tensor {name!r} holds no numbers: {error}") from error
    raise SchemaMismatch(f"tensor {name!r} holds complex numbers; give real and imaginary parts as two tensors")
