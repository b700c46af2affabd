"""For all tests of the worker: one thread for the network, every warning of torch, and no screen."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="session")
def torch_as_in_a_worker() -> None:
    torch.set_num_threads(1)
    torch.set_warn_always(True)  # else the first test alone would fail by a warning


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
