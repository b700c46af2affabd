"""
Weights that a run starts from (--start-from), in place of those that its first worker has drawn.

Tensors are taken by name. A weight that the source lacks, or has in another shape, is refused: half of a trained
network is of no use. Statistics are sums over what was seen: those of a module are taken if all of
them fit, and else stay those of the worker's random play.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ps_common.protocol.tensors import Schema, TensorSpec
from ps_server.state.guards import Denied


@dataclass(frozen=True, eq=False)
class StartingWeights:
    """Trained weights [P] with their whole schema. `place` is what the flag names, `origin` the file and its step."""

    place: str
    origin: str
    schema: Schema
    weights: Tensor

    def for_run(self, schema: Schema, drawn: Tensor) -> tuple[Tensor, str]:
        """
        The first weights [P] of a run or shard with this schema, and a sentence on them for the log. `drawn` [P] are
        those of the worker. Raises Denied that names the first weight that does not fit.
        """
        theirs = {spec.name: spec for spec in self.schema.specs}
        unlike = [spec for spec in schema.specs if not spec.is_as(theirs.get(spec.name))]
        for spec in unlike:
            if spec.role == "weight":
                there = f"has {theirs[spec.name]}" if spec.name in theirs else "has no such tensor"
                reason = f"--start-from {self.place}: tensor {spec} of this run does not fit: {self.origin} {there}"
                what_to_do = "start from weights of the same network and spaces, or without them"
                raise Denied("schema_mismatch", f"{reason}; {what_to_do}")
        left = {_module(spec) for spec in unlike}
        whole = Schema(schema.specs)
        taken, source = torch.full((whole.size,), torch.nan), self.schema.views(self.weights)
        for spec, view in zip(whole.specs, whole.views(taken).values(), strict=True):
            if spec.role == "weight" or _module(spec) not in left:
                view.copy_(source[spec.name])
        part = taken[schema.range]
        return torch.where(part.isnan(), drawn, part), self._sentence(schema, left)

    def _sentence(self, schema: Schema, left: set[str]) -> str:
        sentence = f"starts from the weights of {self.origin}"
        if left:
            sentence += f"; the statistics of {', '.join(sorted(left))} differ, and begin with random play"
        ours = {spec.name for spec in schema.specs}
        if unused := [spec.name for spec in self.schema.specs if spec.name not in ours]:
            sentence += f"; this run does not need {', '.join(unused[:3])}{', …' if unused[3:] else ''}"
        return sentence


def _module(spec: TensorSpec) -> str:
    return spec.name.rpartition(".")[0]
