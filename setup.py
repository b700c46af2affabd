"""
The one thing that pyproject.toml cannot say: a build of a checkout keeps the commit, where ps_common/release.py looks.

A source distribution has that file, and so has the copy that the Dockerfile builds: a build of these takes it along.
"""

import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent / "common"))

from ps_common.release import BUILT_FROM, release


def keep_commit(package: Path) -> None:
    """Write the commit, if it is known, into a copy of the package ps_common, which may be that of an earlier build."""
    _, _, commit = release().partition("+")
    (package / BUILT_FROM).unlink(missing_ok=True)
    if commit:
        (package / BUILT_FROM).write_text(f"{commit}\n", encoding="utf-8")


class Packages(build_py):
    """The packages of a wheel. An editable installation copies none, and reads the commit in .git."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            keep_commit(Path(self.build_lib, "ps_common"))


class Source(sdist):
    """The source distribution."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        keep_commit(Path(base_dir, "common", "ps_common"))


setup(cmdclass={"build_py": Packages, "sdist": Source})
