"""
A hash of the source of a custom part's module: workers on several hosts find out whether they run the same code.

It covers the files of the module's own package: all modules in the folder of the top-level package, or the one file of
a module outside of packages. Other packages are left out: their versions are their own affair. The files are found by
the name of the top-level package, and read; nothing is imported.
"""

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from ps_common.program.objects import MAIN, objects_hash
from ps_common.program.start import find_in_working_folder
from ps_common.protocol.messages import Code
from ps_common.protocol.names import as_text, module_of

DIGITS = 16  # of SHA-256, in hexadecimal


def code_of_parts(parts: Sequence[str]) -> dict[str, Code]:
    """The code of each module that these parts come from, here."""
    find_in_working_folder()
    return {module: code_of(module) for module in dict.fromkeys(map(module_of, parts))}


def code_of(module: str) -> Code:
    """The code of one module, with the place of its package, or of its file, on this host."""
    if module == MAIN:
        return Code(hash=objects_hash(), place="Python objects of the program that began the run")
    places = _places(module.partition(".")[0])
    files = {name: file.read_bytes() for place in places for name, file in _modules(place)}
    if not files:
        return Code(hash="none", place="no file")
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0".encode() + hashlib.sha256(files[name]).digest())
    count = f" ({len(files)} files)" if len(files) > 1 else ""
    return Code(hash=digest.hexdigest()[:DIGITS], place=as_text(f"{places[0]}{count}"))


def _places(package: str) -> list[Path]:
    """The folders of a top-level package, or the file of a module. Only a search inside of a package imports it."""
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was made by hand
        return []
    if spec is None:
        return []
    return [Path(place) for place in spec.submodule_search_locations or filter(None, [spec.origin])]


def _modules(place: Path) -> Iterator[tuple[str, Path]]:
    """The modules in a folder, whose names begin there, or a single one. What no `import` can name is left out."""
    if place.suffix == ".py" and place.is_file():
        yield place.name, place
    for folder, folders, files in os.walk(place):
        folders[:] = filter(str.isidentifier, folders)
        for file in (Path(folder, name) for name in files):
            if file.suffix == ".py" and file.stem.isidentifier() and file.is_file():
                yield file.relative_to(place).as_posix(), file
