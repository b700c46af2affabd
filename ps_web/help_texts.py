"""The help of each setting: the text below it in the source of its section."""

import ast
import inspect
import itertools
import textwrap

import msgspec

from ps_common.settings.run_settings import NAMED_SECTIONS
from ps_common.settings.run_spec import RunSpec


def help_texts() -> dict[str, str]:
    """By setting, "schedule.learning_rate"."""
    run = RunSpec()
    kinds = [
        (name, type(one)) for name in run.__struct_fields__ if isinstance(one := getattr(run, name), msgspec.Struct)
    ]
    kinds += [(section, struct) for section, structs in NAMED_SECTIONS.items() for struct in structs.values()]
    helps = {f"{section}.{name}": text for section, kind in kinds for name, text in _below(kind).items()}
    return _below(RunSpec) | helps


def _below(kind: type) -> dict[str, str]:
    """The text below each setting of a section."""
    found: dict[str, str] = {}
    for owner in reversed([one for one in kind.__mro__ if one.__module__ == RunSpec.__module__]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        for node, after in itertools.pairwise(getattr(definition, "body", [])):
            match node, after:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = " ".join(text.split())
    return found
