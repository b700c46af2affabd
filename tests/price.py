"""
What the tests cost, as they measure it themselves: `make test-price` prints seconds by folder and by program.

CPU is that of a test's process and of the programs that have ended in it. What is left of the wall time, the test has
waited for something: a program, another process that had the core, a timeout. With pytest-xdist each process measures
its own tests, and the first one adds up.
"""

import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import fork_server

NEW_PROCESSES = (  # what a program pays before its first line
    ("python", "pass"), ("with numpy", "import numpy"), ("with torch", "import torch"),
    ("with aiohttp", "import aiohttp.web"), ("with matplotlib", "import matplotlib.pyplot"),
)  # fmt: skip
SHOWN = 40  # tests and programs

Costs = dict[str, list[float]]  # wall, own CPU, CPU of programs, tests

_tests: Costs = {}
_programs: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])  # by name: started, CPU seconds
_started: list[str] = []  # anew, by the test that runs


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _clocks() -> tuple[float, float, float]:
    of_forks = sum(server.cpu_seconds for server in fork_server.started_servers())
    return time.monotonic(), _cpu(resource.RUSAGE_SELF), _cpu(resource.RUSAGE_CHILDREN) + of_forks


def _name(words: list[Any]) -> str:
    """A module behind -m, or a program by its file."""
    texts = [os.fsdecode(word) for word in words]
    if "-m" in texts[:-1]:
        return f"python -m {texts[texts.index('-m') + 1]}"
    named = next((text for text in texts if "python" not in Path(text).name and not text.startswith("-")), texts[0])
    return Path(named).name if "/" in named else named[:30].split("\n")[0]


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        words = arguments[1]
        _started.append(_name([words] if isinstance(words, str | bytes) else list(words)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = _clocks()
    _started.clear()
    forked = {name: list(cost) for server in fork_server.started_servers() for name, cost in server.programs.items()}
    result = yield
    wall, own, programs = (now - then for now, then in zip(_clocks(), before, strict=True))
    _tests[item.nodeid] = [wall, own, programs, 1]
    of_forks = 0.0
    for server in fork_server.started_servers():
        for name, (count, seconds) in server.programs.items():
            known = forked.get(name, [0.0, 0.0])
            _programs[f"{name} (fork)"][0] += count - known[0]
            _programs[f"{name} (fork)"][1] += seconds - known[1]
            of_forks += seconds - known[1]
    for name in _started:
        _programs[name][0] += 1
        _programs[name][1] += (programs - of_forks) / len(_started)
    return result


def pytest_configure() -> None:
    sys.addaudithook(_watch)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["price"] = (_tests, dict(_programs))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    tests, programs = node.workeroutput["price"]
    _tests.update(tests)
    for name, (count, seconds) in programs.items():
        _programs[name][0] += count
        _programs[name][1] += seconds


def _table(terminal: Any, title: str, costs: Costs, most: int) -> None:
    terminal.section(title)
    terminal.line(f"{'wall':>8} {'CPU':>8} {'programs':>8} {'waits':>8} {'tests':>6}")
    for name, (wall, own, programs, tests) in sorted(costs.items(), key=lambda one: -one[1][1] - one[1][2])[:most]:
        waits = max(0.0, wall - own - programs)
        terminal.line(f"{wall:8.1f} {own:8.1f} {programs:8.1f} {waits:8.1f} {tests:6.0f}  {name}")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    folders: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    files: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    functions: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * 4)
    for nodeid, cost in _tests.items():
        path, _, name = nodeid.partition("::")
        for table, key in ((folders, "all"), (folders, str(Path(path).parent)), (files, path)):
            table[key] = [one + more for one, more in zip(table[key], cost, strict=True)]
        key = f"{path}::{name.partition('[')[0]}"
        functions[key] = [one + more for one, more in zip(functions[key], cost, strict=True)]
    _table(terminalreporter, "seconds by folder", folders, len(folders))
    _table(terminalreporter, "seconds by file", files, SHOWN)
    _table(terminalreporter, "seconds by test", functions, 2 * SHOWN)
    terminalreporter.section("programs that tests start")
    for name, (count, seconds) in sorted(_programs.items(), key=lambda one: -one[1][1])[:SHOWN]:
        terminalreporter.line(f"{seconds:8.1f} s CPU {count:6.0f} times  {name}")
    terminalreporter.section("CPU seconds of a new process")
    for name, line in NEW_PROCESSES:
        before = _cpu(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", line], check=True)
        terminalreporter.line(f"{_cpu(resource.RUSAGE_CHILDREN) - before:8.2f}  {name}")
