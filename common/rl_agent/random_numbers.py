"""
Seeds, and the generators that belong to nobody: those of torch, numpy and Python's `random`.

Dropout, and custom networks, algorithms and environments, draw from them. Weights have to be the same in all workers,
and what is drawn afterwards must differ: so the run's seed holds while an agent is built, and a worker's own elsewhere.
"""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

SEED_SHIFT = 2  # of 32 bits: ALE takes 31, and the seeds of thousands of environments follow
NOBODYS = 1  # marks the seed of the generators that belong to nobody


@dataclass
class _Own:
    """A block of `drawing_apart`."""

    seed: int
    forks: int = 0  # of this process, in the block


_own: list[_Own] = []  # of this process, the innermost last


def derived_seed(*words: int) -> int:
    """
    A seed of 30 bits from the run's seed and whose it is: a worker's number, a member's of its gang, and how often that
    has been started before. Zeros at the end change nothing.

    It is that of the first environment, and the others have the next ones. So the seeds of workers and runs are far
    apart, also where those of the runs are neighbours: otherwise environment k + 1 of one run would play as environment
    k of the next.
    """
    return int(np.random.SeedSequence(words).generate_state(1)[0]) >> SEED_SHIFT


@contextmanager
def drawing(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """The generators begin with `seed`, and continue after this block as if it had drawn nothing."""
    gpus = [device] if device is not None and device.type == "cuda" else []
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(gpus):
        begin_with(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


@contextmanager
def drawing_apart(seed: int) -> Iterator[None]:
    """
    As `drawing`, for the process whose environments have this seed: a stream apart from theirs, and another one in each
    process that is forked in this block, as those of vector environments are.
    """
    _own.append(_Own(derived_seed(seed, NOBODYS)))
    try:
        with drawing(_own[-1].seed):
            yield
    finally:
        _own.pop()


def begin_with(seed: int) -> None:
    """Seed the generators; outside of a block of `drawing` for good."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def _count_fork() -> None:
    if _own:
        _own[-1].forks += 1


def _begin_in_fork() -> None:
    if _own:
        _own[-1] = _Own(derived_seed(_own[-1].seed, _own[-1].forks))
        begin_with(_own[-1].seed)


os.register_at_fork(before=_count_fork, after_in_child=_begin_in_fork)
