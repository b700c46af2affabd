"""For all tests of the worker: every warning of torch, and no screen."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def every_warning() -> None:
    torch.set_warn_always(True)  # else the first test alone would fail by a warning


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
