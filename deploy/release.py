"""
A release as far as one machine makes it: this commit is checked, built, tried as its users get it, and tagged. Nothing
is published.

Run it as a module: release VERSION. build/release-VERSION then has the source distribution and the wheel, the site in
`docs`, and `notes.md`, the section of CHANGELOG.md, which is the tag's message, too. `make release` installs what it
needs; CONTRIBUTING.md has the steps before and after.
"""

import os
import re
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

from ps_common.release import VERSION

ROOT = Path(__file__).parent.parent
PYTHON = (sys.executable, "-m")
# A project of a user, the packages of which have names that a project like ps-rl could take from them.
PROJECT = {
    "common/__init__.py": "",
    "common/cartpole.py": "import settings, utils\ndef make(): return utils.made(settings.ID)\n",
    "settings.py": "ID = 'CartPole-v1'\n",
    "utils/__init__.py": "import gymnasium\ndef made(id): return gymnasium.make(id)\n",
    "tests/__init__.py": "",
    "main.py": """
from pathlib import Path
import common.cartpole, settings, tests, utils
import numpy
from ps_rl import load_policy

for module in (common, settings, tests, utils):
    assert Path(module.__file__).is_relative_to(Path.cwd()), module
policy = load_policy("policy")
policy.reset()
assert policy.act(numpy.zeros(4, numpy.float32)) in (0, 1)
""",
}


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """The output of a command without this checkout on its path. Ends the program with it where the command fails."""
    print("  ", *command, flush=True)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{command[0]} has failed: the release is not made")
    return done.stdout.strip()


def notes_of(version: str, changelog: str) -> str:
    """The section of a version, without its heading; "" where there is none."""
    found = re.search(
        rf"^## {re.escape(version)}(?: \([0-9-]+\))?\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE
    )
    return found[1].strip() if found else ""


def missing(version: str) -> Iterator[str]:
    """The things that this commit lacks to be the release of a version, a sentence each."""
    if changed := run("git", "status", "--porcelain"):
        yield f"the tree has changes:\n{changed}"
    if (branch := run("git", "branch", "--show-current")) != "main":
        yield f"the branch is {branch or 'none'}, and a release is made from main"
    if version != VERSION:
        yield f"common/ps_common/release.py says {VERSION}: set VERSION there, and commit"
    if not notes_of(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")):
        yield f"CHANGELOG.md has no section `## {version} (DATE)` with text in it"
    if not (ROOT / "tests/upgrade/samples" / version).is_dir():
        yield f"there are no samples: python -m tests.upgrade.make_samples tests/upgrade/samples/{version}, and commit"
    if run("git", "tag", "--list", f"v{version}"):
        yield f"there is a tag v{version}"


def try_in_a_project(python: Path, project: Path) -> None:
    """Train CartPole by an installed ps-rl, in a user's project, and take the policy away to Python."""
    for name, text in PROJECT.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text, encoding="utf-8")
    flags = ("--environment", "common.cartpole:make", "--workers", "1", "--max-steps", "600", "--no-web")
    run(python.with_name("rl-cluster"), *flags, "--run-dir", "run", folder=project)
    export = ("--checkpoint", "run", "--export", "policy", "--import", "common.cartpole", "--episodes", "2")
    run(python.with_name("rl-eval"), *export, folder=project)
    run(python, "main.py", folder=project)


def main(version: str) -> None:
    if lacks := list(missing(version)):
        raise SystemExit("\n".join(lacks))
    made = ROOT / "build" / f"release-{version}"
    shutil.rmtree(made, ignore_errors=True)
    # A build in the checkout itself would take along what earlier builds have left there.
    run("git", "clone", "--quiet", "--branch", "main", ROOT, made / "source")
    run(*PYTHON, "build", "--outdir", made, made / "source")
    files = [*made.glob("*.whl"), *made.glob("*.tar.gz")]
    run(*PYTHON, "twine", "check", "--strict", *files)
    venv.create(made / "venv", with_pip=True)
    python = made / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "-c", "constraints.txt", files[0])
    try_in_a_project(python, made / "project")
    commit = run("git", "rev-parse", "HEAD")
    said = run(python.with_name("ps-server"), "--version", folder=made)
    if f"{version}+{commit[:9]}" not in said:
        raise SystemExit(f"the installed program says {said!r}, not {version} and its commit")
    flags = ("-c", "docs", "-b", "html", "-q", "-E", "-W", "--keep-going", "-D", f"html_title=ps-rl {version}")
    run(*PYTHON, "sphinx", *flags, ".", made / "docs")
    notes = made / "notes.md"
    notes.write_text(notes_of(version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) + "\n", encoding="utf-8")
    for tried in ("source", "venv", "project"):
        shutil.rmtree(made / tried)
    run("git", "tag", "--annotate", f"v{version}", "--cleanup=verbatim", "--file", notes)
    print(f"{made} has the release, and v{version} is its tag, on this machine alone. The image:")
    image = f"docker build -f docker/Dockerfile -t ps-rl:{version}"
    print(f"{image} --build-arg VERSION={version} --build-arg COMMIT={commit} .")


if __name__ == "__main__":
    main(*sys.argv[1:])
