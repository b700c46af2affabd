"""The public names: each can be imported, has a docstring, and is known to type checkers."""

import ast
import inspect
from pathlib import Path

import ps_rl


def test_each_public_name_is_there_with_a_docstring_and_an_import_for_type_checkers() -> None:
    [checked] = [node for node in ast.parse(Path(ps_rl.__file__).read_text()).body if isinstance(node, ast.If)][:1]
    typed = {
        alias.asname: node.module for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert typed == ps_rl.PLACES
    for name in ps_rl.__all__:
        assert inspect.getdoc(getattr(ps_rl, name)), name
