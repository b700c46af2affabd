"""
A hash of the source of a user's own module: workers on several hosts find out whether they run the same code.

It covers the module's file and those that it imports, directly or not, from its own package or, outside of
site-packages, from the folder that holds it. Imports are read from the syntax tree. Packages of others are left out:
their versions are their own affair.
"""

import ast
import hashlib
import importlib.util
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

from common.program.start import find_in_working_folder
from common.protocol.messages import Code
from common.protocol.names import as_text
from common.settings.import_paths import module_of

DIGITS = 16  # of SHA-256, in hexadecimal
INSTALLED = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib")}
OURS = {"common", "ps_server", "rl_worker"}  # messages name their version themselves


def code_of_parts(parts: Sequence[str]) -> dict[str, Code]:
    """The code of each module that these parts come from, here. The modules may be imported already."""
    find_in_working_folder()
    return {module: code_of(module) for module in dict.fromkeys(map(module_of, parts))}


def code_of(module: str) -> Code:
    """The code of one module, with the place of its file on this host."""
    spec = _spec(module)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return Code(hash="none", place="no file")
    root = Path(spec.origin).parents[spec.name.count(".") + (spec.submodule_search_locations is not None)]
    files: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        found = _spec(name) if name not in files and _is_own(name, module, root) else None
        if found is None or found.origin is None or not found.origin.endswith(".py"):
            continue
        files[name] = file = Path(found.origin)
        waiting += [*_imported(file, name, found), *([name.rpartition(".")[0]] if "." in name else [])]
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0".encode() + hashlib.sha256(files[name].read_bytes()).digest())
    others = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return Code(hash=digest.hexdigest()[:DIGITS], place=as_text(f"{spec.origin}{others}"))


def _is_own(name: str, module: str, root: Path) -> bool:
    """Whether an imported name belongs to the code of the module, whose package lies in the folder `root`."""
    top = name.partition(".")[0]
    if top == module.partition(".")[0]:
        return True
    # Only the package that holds the name is looked for: a search inside of it would import it.
    spec = _spec(top) if top not in OURS and root not in INSTALLED else None
    if spec is None:
        return False
    places = [spec.origin] if spec.origin is not None else list(spec.submodule_search_locations or ())
    above = {folder for place in places for folder in Path(place).parents}
    return root in above and not above & INSTALLED  # the folder may hold a virtual environment


def _imported(file: Path, name: str, spec: ModuleSpec) -> Iterator[str]:
    """Names that may be modules, of all imports of a file, wherever in it."""
    package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (origin, *(f"{origin}.{alias.name}" for alias in node.names))


def _spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):  # no such module, one without a spec, or a name in a module
        return None
