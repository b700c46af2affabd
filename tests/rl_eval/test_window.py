"""The window, drawn by SDL's dummy driver, which needs no display."""

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.interface import Environments
from rl_agent.environments.make import make_environments
from rl_eval.window import MOST_FRAMES_PER_SECOND, RenderedEnvironments, Window

pygame = pytest.importorskip("pygame")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    window = Window("a game", clock=Clock())
    yield window
    window.close()


def later(window: Window) -> None:
    cast(Any, window)._clock.now += 1 / MOST_FRAMES_PER_SECOND


def seen() -> NDArray[Any]:
    """[height, width, 3]"""
    return np.swapaxes(pygame.surfarray.array3d(pygame.display.get_surface()), 0, 1)


def a_screen() -> NDArray[np.uint8]:
    """A picture of 210 x 160 whose first row is red."""
    screen = np.zeros((210, 160, 3), dtype=np.uint8)
    screen[0] = (255, 0, 0)
    return screen


def test_small_screens_are_shown_larger(window: Window) -> None:
    window.show(a_screen)
    picture = seen()
    assert picture.shape == (420, 320, 3)
    assert (picture[:2] == (255, 0, 0)).all()
    assert (picture[2:] == 0).all()


def test_no_more_pictures_are_made_than_can_be_looked_at(window: Window) -> None:
    made: list[int] = []
    for step in range(10):
        window.show(lambda step=step: (made.append(step), a_screen())[1])  # type: ignore[misc]
        if step == 4:
            later(window)
    assert made == [0, 5]


def test_training_goes_on_when_the_window_is_closed(window: Window) -> None:
    window.show(a_screen)
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    later(window)
    window.show(a_screen)
    assert not window.is_open
    later(window)
    window.show(a_screen)


@pytest.mark.parametrize("environment", ["ALE/Pong-v5", "CartPole-v1"])
def test_what_is_shown_is_the_first_training_game(window: Window, environment: str) -> None:
    inner = make_environments(Environment(id=environment), count=2, with_screen=True)
    environments = cast(Environments, RenderedEnvironments(inner, window))
    assert environments.reset(3).shape == (2, *environments.observations.shape)
    environments.step(np.zeros(2, dtype=np.int64))
    screen = inner.screen()
    picture = seen()
    assert picture.shape[0] >= 400
    enlarged = picture.shape[0] // screen.shape[0]
    assert (picture[::enlarged, ::enlarged] == screen).all()
    environments.close()
    assert not window.is_open


@pytest.mark.parametrize("driver", ["x11", "offscreen"])
def test_no_display_is_one_sentence(driver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", driver)
    monkeypatch.setenv("DISPLAY", ":no-such-display")
    with pytest.raises(SettingsError, match=r"^--render: no window can be opened here .*; leave --render out"):
        Window("a game")
