"""Denormal numbers do not stay in the state of an optimizer."""

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from ps_common.program.resources import flush_denormals
from ps_common.settings.run_spec import AdamSettings
from ps_server.state.optimizers import Adam


def mean_after_updates_without_gradient() -> list[int]:
    """The bits of Adam's means for a weight that once had a gradient: comparisons may take a denormal number for 0."""
    adam, weights = Adam(1, AdamSettings()), torch.zeros(1)
    adam.apply(weights, torch.ones(1), 1e-3)
    for _ in range(1100):
        adam.apply(weights, torch.zeros(1), 1e-3)
    return bits(adam.slots["mean"])


def bits(tensor: Tensor) -> list[int]:
    return tensor.view(torch.int32).tolist()


def in_a_thread(what: Callable[[], list[int]], *, flushed: bool) -> list[int]:
    """The flag is the thread's own."""
    results: list[list[int]] = []

    def run() -> None:
        if flushed:
            flush_denormals()
        results.append(what())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


def test_the_mean_of_a_weight_without_gradient_becomes_zero() -> None:
    assert in_a_thread(mean_after_updates_without_gradient, flushed=True) == [0]
    assert in_a_thread(mean_after_updates_without_gradient, flushed=False) != [0], "then there is nothing to flush"


def test_threads_that_it_starts_flush_too() -> None:
    def of_a_new_thread() -> list[int]:
        return in_a_thread(lambda: bits(torch.full((1,), 1e-42) * 1), flushed=False)

    assert in_a_thread(of_a_new_thread, flushed=True) == [0]
    assert in_a_thread(of_a_new_thread, flushed=False) != [0]
