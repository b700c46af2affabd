import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder; its modules, and the ids that they register, are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    before = set(sys.modules)
    yield tmp_path
    own = [
        name
        for name in set(sys.modules) - before
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path))
    ]
    for id in [id for id, spec in gymnasium.registry.items() if getattr(spec.entry_point, "__module__", "") in own]:
        del gymnasium.registry[id]
    for name in own:
        del sys.modules[name]
