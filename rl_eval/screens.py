"""The sizes of screens in pictures: screens are enlarged or reduced by whole factors, so that pixels stay even."""

import numpy as np

from rl_agent.environments.interface import Screen


def reduced(screen: Screen, times: int) -> Screen:
    """Means of squares of `times` by `times` pixels: thin lines fade instead of vanishing."""
    if times == 1:
        return screen
    height, width = (side // times * times for side in screen.shape[:2])
    squares = screen[:height, :width].reshape(height // times, times, width // times, times, -1)
    means: Screen = squares.mean(axis=(1, 3)).astype(np.uint8)
    return means


def fitted(screen: Screen, *, height: int, width: int) -> Screen:
    """The screen as large as it fits into these pixels."""
    smaller = max(-(-screen.shape[0] // height), -(-screen.shape[1] // width))
    larger = min(height // screen.shape[0], width // screen.shape[1])
    return reduced(screen, smaller) if smaller > 1 else screen.repeat(larger, axis=0).repeat(larger, axis=1)
