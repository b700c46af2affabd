"""
A plugin of pytest that asks the tests of each change: all are collected once. A fork of this process then has the
function's new code, in every function object that was made of the old one, and runs the tests that call it until one
fails; so a change costs the time of these tests and nothing more.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from tests.mutants.places import ROOT, Place, code_of

PROGRAMS = {"integration", "examples", "documents", "on_ray", "ps_track", "zoo", "upgrade", "deploy"}  # slow tests
SLOWEST_SECONDS = 10.0  # of a test that is asked
PATIENCE_SECONDS, PATIENCE = 5.0, 10.0  # a test hangs after so long, and so many times its own duration


class Judge:
    """A plugin of pytest: in place of running the tests once, it asks them of every place."""

    def __init__(self, places: Sequence[Place], *, processes: int, all_killers: bool) -> None:
        self._places, self._processes, self._all_killers = places, processes, all_killers
        self._failed = False
        self.killers: dict[Place, list[str]] = {}  # tests that fail
        self.asked: dict[Place, list[str]] = {}
        self.seconds: dict[str, float] = {}  # by test
        self._callers: defaultdict[str, list[int]] = defaultdict(list)  # by function: numbers of tests
        self._live: defaultdict[str, list[FunctionType]] = defaultdict(list)  # by file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = [item for item in session.items if not PROGRAMS & set(item.path.parts)]
        for file in {place.file for place in self._places}:
            importlib.import_module(file.removeprefix("common/").removesuffix(".py").replace("/", "."))
        for one in gc.get_objects():
            if type(one) is FunctionType and one.__code__.co_filename.startswith(str(ROOT)):
                self._live[one.__code__.co_filename].append(one)
        gc.collect()
        gc.freeze()
        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        say = terminal.write_line if terminal else print
        for line in self._in_processes(self._trace):
            number, seconds, functions, failed = line
            self.seconds[self._items[number].nodeid] = seconds
            if failed:
                say(f"fails without a change: {self._items[number].nodeid}")
            elif seconds < SLOWEST_SECONDS:
                for function in functions:
                    self._callers[function].append(number)
        for number, asked, killers in self._in_processes(self._judge):
            place = self._places[number]
            self.asked[place] = [self._items[one].nodeid for one in asked]
            self.killers[place] = [self._items[one].nodeid for one in killers]
            if not killers:
                say(f"survives {len(asked)} tests: {place}")
        return True

    def _in_processes(self, work: Callable[[int, Any], None]) -> Iterator[Any]:
        """The lines of JSON that forks write, each of them doing its share."""
        pipes = []
        for number in range(self._processes):
            pipe = _Pipe()
            if not os.fork():
                work(number, pipe.writer())
                os._exit(0)
            pipe.reads()
            pipes.append(pipe)
        while pipes:
            for pipe in select.select(pipes, [], [])[0]:
                if not pipe.read():
                    pipes.remove(pipe)
                    os.wait()
                yield from (json.loads(line) for line in pipe.lines())

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> bool:
        """Whether the test fails."""
        self._failed = False
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        return self._failed

    def _trace(self, process: int, lines: Any) -> None:
        """Which functions of the product each test calls."""
        _hush()
        called: set[CodeType] = set()

        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                called.add(frame.f_code)

        files = list(dict.fromkeys(item.path for item in self._items))
        mine = set(files[process :: self._processes])
        numbers = [number for number, item in enumerate(self._items) if item.path in mine]
        for number, following in zip(numbers, [*numbers[1:], None], strict=True):
            called.clear()
            threading.setprofile(note)
            begun = time.process_time()
            sys.setprofile(note)
            failed = self._run(self._items[number], None if following is None else self._items[following])
            sys.setprofile(None)
            names = {f"{one.co_filename}:{one.co_qualname}" for one in tuple(called)}
            ours = [name for name in names if name.startswith(f"{ROOT}/") and not name.startswith(f"{ROOT}/tests/")]
            print(json.dumps([number, time.process_time() - begun, ours, failed]), file=lines)

    def _judge(self, process: int, lines: Any) -> None:
        for number in range(process, len(self._places), self._processes):
            place = self._places[number]
            waiting = self._callers[f"{ROOT / place.file}:{place.function}"]
            waiting = sorted(waiting, key=lambda one: self.seconds[self._items[one].nodeid])
            asked, killers = waiting, []
            while waiting:
                results = self._ask(place, waiting)
                killers += [one for one, passed in zip(waiting, results, strict=False) if not passed]
                waiting = waiting[len(results) :] if self._all_killers or not killers else []
            print(json.dumps([number, asked, killers]), file=lines)

    def _ask(self, place: Place, tests: Sequence[int]) -> list[bool]:
        """Which of these tests pass in a fork with the change: up to one that ends its process or hangs, or the first
        that fails where nobody asks for others."""
        pipe = _Pipe()
        if not (child := os.fork()):
            self._changed(place, tests, pipe.writer())
            os._exit(0)
        pipe.reads()
        results: list[bool] = []
        while len(results) < len(tests) and (self._all_killers or all(results)):
            limit = PATIENCE_SECONDS + PATIENCE * self.seconds[self._items[tests[len(results)]].nodeid]
            if not select.select([pipe], [], [], limit)[0] or not pipe.read():
                results += [line == "passed" for line in pipe.lines()] + [False]
                break
            results += [line == "passed" for line in pipe.lines()]
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return results

    def _changed(self, place: Place, tests: Sequence[int], lines: Any) -> None:
        _hush()
        os.setsid()
        codes = code_of(place)
        for function in self._live[str(ROOT / place.file)]:
            old = function.__code__
            if (new := codes.get((old.co_qualname, old.co_firstlineno))) and new.co_freevars == old.co_freevars:
                function.__code__ = new
        for number, following in zip(tests, [*tests[1:], None], strict=True):
            failed = self._run(self._items[number], None if following is None else self._items[following])
            print("failed" if failed else "passed", file=lines)
            if failed and not self._all_killers:
                return


class _Pipe:
    """Lines from a fork to its parent."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        self._bytes = b""

    def writer(self) -> Any:
        os.close(self._read)
        return os.fdopen(self._write, "w", buffering=1)

    def reads(self) -> None:
        os.close(self._write)

    def fileno(self) -> int:
        return self._read

    def read(self) -> bool:
        """Waits; False: the other end is closed."""
        more = os.read(self._read, 2**20)
        self._bytes += more
        return bool(more)

    def lines(self) -> list[str]:
        *lines, self._bytes = self._bytes.split(b"\n")
        return [line.decode() for line in lines]

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._read)


def _hush() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
