"""A newcomer's first commands at the real programs: for help, for versions, for what there is, with TAB."""

import subprocess
import sys
from pathlib import Path

import pytest

from ps_common.release import release
from ps_common.settings.run_files import load_preset, presets
from tests.documents.commands import blocks_of
from tests.integration.processes import Programs

PROGRAMS = ["ps-server", "ps-ctl", "ps-web", "rl-worker", "rl-cluster", "rl-eval"]
DEADLINE_SECONDS = 60


def script(program: str) -> str:
    return str(Path(sys.executable).with_name(program))


def bash(line: str) -> subprocess.CompletedProcess[str]:
    """Runs a line as typed; a pipe's status is that of its first program that fails."""
    command = ["bash", "-o", "pipefail", "-c", line]
    return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False)


@pytest.mark.parametrize(
    "arguments",
    ["rl-cluster --help", "ps-ctl status --help", "rl-cluster --lr 1"],
)
def test_a_reader_that_leaves_early_is_no_fault(arguments: str) -> None:
    """The reader is gone before the first byte: each write fails, and the last flush of the interpreter too."""
    program, rest = arguments.split(" ", 1)
    done = bash(f"{{ sleep 0; {script(program)} {rest} 2>&1; echo $? >&3; }} 3>&2 | true")
    assert done.stderr == ("2\n" if "--lr" in rest else "0\n"), done.stderr


def printed(programs: Programs, *words: str) -> str:
    """By a fork, which starts in milliseconds."""
    program = programs.start(*words)
    assert program.wait() == 0, program.output
    return program.output


def test_every_program_tells_its_version(programs: Programs) -> None:
    for program in PROGRAMS:
        assert printed(programs, program, "--version") == f"{program} {release()}\n"


def test_a_list_names_every_preset_with_its_environment(programs: Programs) -> None:
    listed = [line.split()[:2] for line in printed(programs, "rl-cluster", "--list").splitlines()]
    for preset in presets():
        assert [preset, f"{load_preset(preset).environment.id}:"] in listed


@pytest.fixture(scope="module")
def completions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of completions after the block of OPERATIONS.md, in a home of its own."""
    (block,) = (one for one in blocks_of("docs/OPERATIONS.md") if "--tyro-write-completion" in one.text)
    home = tmp_path_factory.mktemp("home")
    programs = Path(sys.executable).parent
    done = bash(f"export HOME={home} PATH={programs}:$PATH\n{block.text}")
    assert done.returncode == 0, done.stderr
    return home / ".local/share/bash-completion/completions"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("rl-cluster --preset pong-", {"pong-a3c", "pong-a3c-paper", "pong-mlp", "pong-one-step-sarsa", "pong-sticky"}),
        ("rl-cluster --optimizer m", {"momentum"}),
        ("rl-cluster --track w", {"wandb"}),
        ("ps-server --preset pong-o", {"pong-one-step-sarsa"}),
        ("rl-worker --patience", {"--patience-minutes"}),
        ("rl-eval --ver", {"--verify"}),
        ("ps-web --allow", {"--allow-host"}),
        ("ps-ctl ke", {"keygen"}),
    ],
)
def test_tab_completes_presets_and_flags(typed: str, expected: set[str], completions: Path) -> None:
    """In a real bash, as installed by the documented lines."""
    words = typed.split()
    file = completions / words[0]
    quoted = " ".join(f"'{word}'" for word in words)
    last = len(words) - 1
    ask = f"COMP_WORDS=({quoted}); COMP_CWORD={last}; COMP_LINE='{typed}'; COMP_POINT={len(typed)}"
    call = f"$(complete -p {words[0]} | sed 's/.*-F \\([^ ]*\\).*/\\1/') {words[0]} '{words[-1]}' '{words[-2]}'"
    done = bash(f"source {file}; {ask}; {call}; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
    assert {reply.strip() for reply in done.stdout.splitlines()} == expected, done.stderr
