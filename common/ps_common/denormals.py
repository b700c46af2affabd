"""Denormal numbers, those nearer to 0 than 1.2e-38: processors compute with them many times slower."""

import torch


def flush_denormals() -> None:
    """
    Have this thread, and the threads that it starts, take denormal numbers for 0 and round results to 0.

    A weight that gets no gradient for some 830 updates, since its input is 0 meanwhile or its unit is dead, has a
    denormal mean in Adam: each update multiplies the mean by 0.9. Rounding then holds it at 6e-45 for ever. In runs of
    Pong 2 to 10 % of the weights are there after minutes. With 15 % an update of 0.7 M parameters takes five times as
    long.
    """
    torch.set_flush_denormal(True)
