"""
Why weights do not fit a network, in the words of the user: what the environment showed and took when they were trained.

A file of weights has the shapes of tensors and no spaces. So the present spaces are changed, one size at a time, to
sizes that the tensors have, until they give the network that was trained.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

from ps_common.protocol.tensors import Schema
from rl_agent.environments.spaces import (
    ActionSpace,
    BoxActions,
    DiscreteActions,
    ObservationSpace,
    Spaces,
    packed_space,
)
from rl_agent.networks.compatibility import BY_SIZE


@dataclass(frozen=True)
class ThenSpaces:
    """Spaces that an environment may have had."""

    observations: ObservationSpace
    actions: ActionSpace


def why_other(
    trained: Schema,
    spaces: Spaces,
    *,
    environment: str,
    planned: Callable[[Spaces], Schema],
    fits: Callable[[Schema, Schema], bool],
) -> str:
    """
    One sentence on trained weights that do not fit these spaces of the environment. `planned` is the network of
    spaces; `fits`: whether trained weights are those of a network.
    """
    present = planned(spaces)
    for then in _candidates(trained, present, spaces):
        with suppress(Exception):  # a custom torso may raise anything for what it is not made for
            if fits(trained, planned(then)):
                return _sentence(then, spaces, environment)
    return f"the weights are of another network: {_changed(trained, present)}"


def _candidates(trained: Schema, present: Schema, spaces: Spaces) -> Iterator[ThenSpaces]:
    """Those that differ least come first."""
    before = {spec.name: spec.shape for spec in trained.specs}
    sizes = sorted(
        {
            was
            for spec in present.specs
            for was, now in zip(before.get(spec.name, ()), spec.shape, strict=False)
            if was != now
        }
    )
    seen = [spaces.observations, *_observations(spaces.observations, sizes)]
    taken = [spaces.actions, *_actions(spaces.actions, sizes)]
    found = [ThenSpaces(observations, actions) for observations, actions in product(seen, taken)]
    return iter(
        sorted(
            found[1:],
            key=lambda then: (then.observations != spaces.observations) + (then.actions is not spaces.actions),
        )
    )


def _observations(space: ObservationSpace, sizes: list[int]) -> Iterator[ObservationSpace]:
    if not space.parts:
        for shape in _shapes(space.shape, sizes):
            yield replace(space, shape=shape)
    for changed, part in enumerate(space.parts):
        for shape in _shapes(part.shape, sizes):
            yield packed_space(
                [
                    (one.kind, shape if number == changed else one.shape, one.dtype)
                    for number, one in enumerate(space.parts)
                ]
            )


def _shapes(shape: tuple[int, ...], sizes: list[int]) -> Iterator[tuple[int, ...]]:
    """Other numbers of elements or channels, and images of the sizes that have a torso of their own."""
    yield from ((size, *shape[1:]) for size in sizes)
    if len(shape) == 3:
        yield from ((shape[0], *side) for side in BY_SIZE if side != shape[1:])


def _actions(space: ActionSpace, sizes: list[int]) -> Iterator[ActionSpace]:
    for size in sizes:
        if isinstance(space, DiscreteActions):
            yield DiscreteActions(size)
        elif isinstance(space, BoxActions) and size % 2 == 0:  # a mean and a variance for each
            low, high = (ends[:1].repeat(size // 2) for ends in (space.low, space.high))
            yield BoxActions(low, high, space.squashed)


def _sentence(then: ThenSpaces, now: Spaces, environment: str) -> str:
    differences = []
    if then.observations != now.observations:
        differences.append(
            f"its environment showed {then.observations}, and {environment} shows {now.observations} now"
        )
    if then.actions is not now.actions:
        took, takes = _taken(then.actions), _taken(now.actions)
        differences.append(f"its environment took {took}, and {environment} takes {takes} now")
    return "; ".join(differences)


def _taken(actions: ActionSpace) -> str:
    match actions:
        case DiscreteActions(count=count):
            return f"one of {count} actions"
        case BoxActions():
            return f"{len(actions.low)} real numbers"
    return f"{len(actions.counts)} choices, of {', '.join(map(str, actions.counts))}"


def _changed(trained: Schema, present: Schema) -> str:
    """The first tensor that differs, then and now."""
    before = {spec.name: spec for spec in trained.specs}
    for spec in present.specs:
        if (was := before.get(spec.name)) is None:
            return f"they have no tensor {spec}"
        if was != spec:
            return f"tensor {spec.name!r} was {list(was.shape)}, and is {list(spec.shape)} now"
    gone = [spec for spec in trained.specs if spec.name not in {one.name for one in present.specs}]
    return f"tensor {gone[0]} is not in it" if gone else "the same tensors are in another order"
