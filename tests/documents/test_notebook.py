"""The notebook of the tutorial: each cell shows what the text around it says."""

import ast
import io
import json
import pdb  # noqa: T100
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from ps_common.program import objects
from tests.documents.commands import ROOT

NOTEBOOK = ROOT / "docs/tutorial/6-from-python.ipynb"
HAS_LEARNED = "update.episodes > 500 and update.mean_return_100 > 0.7"


def value_of(source: str, names: dict[str, Any]) -> Any:
    """Run a cell; the value of the expression at its end, which a notebook shows."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, str(NOTEBOOK), "exec"), names)
    return last and eval(compile(last, str(NOTEBOOK), "eval"), names)  # noqa: S307


@pytest.mark.timeout(300)
@pytest.mark.parametrize("learns", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_each_cell_shows_what_the_notebook_says(learns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `learns` the run stays in this process, and the callback ends it after some games."""
    typed, answered = io.StringIO("p self.here\nc\n"), io.StringIO()
    debugger = pdb.Pdb(stdin=typed, stdout=answered)
    monkeypatch.setattr(pdb, "set_trace", lambda: debugger.set_trace(sys._getframe(1)))
    monkeypatch.setattr(objects, "_given", {})
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"]
    code = {cell["id"]: "".join(cell["source"]) for cell in cells}
    assert HAS_LEARNED in code["callback"]
    if not learns:
        code["callback"] = code["callback"].replace(HAS_LEARNED, "update.episodes > 40")
        code["train"] = code["train"].replace("workers=2", "workers=0")
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = {name: value_of(text, names) for name, text in code.items()}
    run = names["run"]

    assert re.search(r"step\(\)\n.*\(Pdb\) array\(\[\d, \d\]\)\n\(Pdb\) $", answered.getvalue(), re.DOTALL)
    assert shown["debug"].ending == "max_steps 500 reached"
    assert shown["train"].ending == shown["ending"] == "the treasure is found in time"
    assert run.settings["network_kwargs"] == {"width": 32}
    assert "logged/steps_to_the_treasure" in (run.folder / "logged.jsonl").read_text()
    assert "<svg" in shown["run"]._repr_html_()
    assert shown["evaluate"].episodes == shown["larger"].episodes == 100
    assert -1 <= shown["random"] < 0
    assert shown["export"] == ["README.md", "model.safetensors", "receipt.json", "settings.toml"]
    assert shown["load"] is True
    if learns:
        before, after = shown["games"]
        assert after < before / 1.5
        assert shown["random"] + 0.5 < shown["larger"].mean < shown["evaluate"].mean
        assert 0 < shown["play"] <= 1
