"""A window that shows the first game of a worker during training."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pygame

from ps_common.errors import SettingsError
from rl_agent.environments.interface import Environments, Screen, Stepped

SMALLEST_SIDE = 420  # pixels: smaller screens are enlarged
OFFSCREEN_DRIVER = "offscreen"  # SDL's choice when it finds no display
MOST_FRAMES_PER_SECOND = 30  # frames above this rate are skipped, so that the window costs little


class Window:
    """Shows screens until the user closes it; training continues without it."""

    def __init__(self, title: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises SettingsError if there is no display."""
        try:
            pygame.display.init()
            if pygame.display.get_driver() == OFFSCREEN_DRIVER:
                raise pygame.error("there is no display")
            # Hidden until the size of the first screen is known.
            self._surface = pygame.display.set_mode((1, 1), pygame.HIDDEN)
        except pygame.error as error:
            pygame.display.quit()
            raise SettingsError(
                f"--render: no window can be opened here ({error}); leave --render out, or set DISPLAY"
            ) from error
        pygame.display.set_caption(title)
        self.is_open = True
        self._clock = clock
        self._due = 0.0

    def show(self, screen: Callable[[], Screen]) -> None:
        """Show the result of `screen`, which is called only if the next frame is due."""
        now = self._clock()
        if not self.is_open or now < self._due:
            return
        self._due = now + 1 / MOST_FRAMES_PER_SECOND
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self.close()
            return
        picture = pygame.surfarray.make_surface(np.swapaxes(screen(), 0, 1))
        width, height = picture.get_size()
        enlarge = max(1, SMALLEST_SIDE // min(width, height))
        size = (width * enlarge, height * enlarge)
        if size != self._surface.get_size():
            self._surface = pygame.display.set_mode(size)
        self._surface.blit(pygame.transform.scale(picture, size), (0, 0))
        pygame.display.flip()

    def close(self) -> None:
        self.is_open = False
        pygame.display.quit()


class RenderedEnvironments:
    """A wrapper that shows the first game in a window; everything else is passed through. Requires a screen."""

    def __init__(self, environments: Environments, window: Window) -> None:
        self._environments = environments
        self._window = window

    def step(self, actions: Any) -> Stepped:
        stepped = self._environments.step(actions)
        self._window.show(self._environments.screen)
        return stepped

    def close(self) -> None:
        self._environments.close()
        self._window.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environments, name)
