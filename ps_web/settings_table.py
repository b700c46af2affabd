"""The table of settings as the page shows it: what each does, and its default, which depends on the algorithm."""

import ast
import inspect
import itertools
import textwrap
from functools import cache
from typing import Any

import msgspec

from ps_common.settings.run_settings import NAMED_SECTIONS
from ps_common.settings.run_spec import RunSpec


@cache
def settings_table() -> dict[str, dict[str, Any]]:
    """`defaults` by section, of algorithms and optimizers by name; `help` by setting, "schedule.learning_rate"."""
    defaults = RunSpec().to_dict()
    kinds = [
        (name, type(section)) for name in defaults if isinstance(section := getattr(RunSpec(), name), msgspec.Struct)
    ]
    for section, structs in NAMED_SECTIONS.items():
        defaults[section] = {name: msgspec.to_builtins(struct()) for name, struct in structs.items()}
        kinds += [(section, struct) for struct in structs.values()]
    helps = {f"{section}.{name}": text for section, kind in kinds for name, text in _helps(kind).items()}
    return {"defaults": defaults, "help": helps}


def _helps(kind: type) -> dict[str, str]:
    """The text below each setting of a section, as its source has it."""
    found: dict[str, str] = {}
    for owner in reversed([one for one in kind.__mro__ if one.__module__ == RunSpec.__module__]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        for node, after in itertools.pairwise(getattr(definition, "body", [])):
            match node, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found
