"""
`rl-cluster` and `rl-eval` as children of this process. A thread of its own starts rl-cluster: the kernel ends a child
when the thread that started it ends, and a notebook's threads come and go.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ps_common.errors import PsRlError
from ps_common.program.child_processes import Child
from ps_common.program.objects import handed
from ps_common.program.stop_signals import LAST_CHECKPOINT_SECONDS
from ps_common.run_folder.paths import ENDPOINT, records_folder, written_at

LOG = "cluster.log"
LOOK_SECONDS = 0.2  # between two looks at it
START_SECONDS = 300.0  # for the server to listen
STOP_SECONDS = LAST_CHECKPOINT_SECONDS + 10.0  # for a run to end in order


class ClusterProcess:
    """The process; `child` is what there is to ask of it."""

    child: Child

    def __init__(
        self, flags: Sequence[str], folder: Path, objects: bytes, *, when_over: Callable[[], object] = bool
    ) -> None:
        """
        `objects`: pickled, for all processes of the run. `when_over` is called in another thread when the process has
        ended. Raises SettingsError or OSError when it cannot start.
        """
        self._folder, self._log = folder, folder / LOG
        self._before = written_at(self._endpoint)  # by a server that was killed, where a run is resumed
        self._error: BaseException | None = None  # of the start
        self._is_unwanted = False  # nobody will have this object, who could end the process
        begun = threading.Event()
        arguments = (flags, objects, begun, when_over)
        try:
            threading.Thread(target=self._keep, args=arguments, name="run", daemon=True).start()
            begun.wait()
        except BaseException:  # Ctrl-C
            self._is_unwanted = True
            raise
        if self._error is not None:
            raise self._error

    @property
    def _endpoint(self) -> Path:
        return records_folder(self._folder) / ENDPOINT

    def wait_for_server(self) -> None:
        """Until the server listens, or the process has ended. Raises PsRlError after long without."""
        while written_at(self._endpoint) in (0.0, self._before) and self.child.exit_status is None:
            if self.child.age_seconds > START_SECONDS:
                raise PsRlError(f"the server did not come up within {START_SECONDS:.0f} s; see {self._log}")
            time.sleep(LOOK_SECONDS)

    def _keep(
        self, flags: Sequence[str], objects: bytes, begun: threading.Event, when_over: Callable[[], object]
    ) -> None:
        """The thread."""
        try:
            with handed(objects) as variables:
                # A notebook has the programs that it starts draw for a terminal, and the output of this one is a file.
                self.child = Child("rl_cluster", flags, self._log, variables | {"FORCE_COLOR": ""})
                begun.set()
                while self.child.exit_status is None:
                    if self._is_unwanted:
                        self.child.end(within_seconds=STOP_SECONDS)
                    self.child.wait(within_seconds=LOOK_SECONDS)
            when_over()
        except BaseException as error:
            if begun.is_set():
                raise
            self._error = error
        finally:
            begun.set()


def run_rl_eval(flags: Sequence[str], objects: bytes) -> None:
    """`rl-eval` with these flags, to its end. Raises PsRlError with its reason."""
    with tempfile.NamedTemporaryFile() as log, handed(objects) as variables:
        child = Child("rl_eval", flags, Path(log.name), variables)
        try:
            child.wait()
        finally:
            child.end(within_seconds=0)
        if not child.has_done_its_work:
            raise PsRlError(f"rl-eval: {child.cause_of_death()}")
