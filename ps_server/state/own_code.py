"""
The code of a run's own parts, by module: the first worker that states it decides, and others must have the same.

Server and standby know hashes alone, and the place of the file on the first worker's host. A checkpoint keeps both.
"""

from collections.abc import Mapping, Sequence

from ps_common.protocol.messages import Code
from ps_common.settings.import_paths import module_of


class OwnCode:
    """Empty for a run without parts of somebody's own."""

    def __init__(self) -> None:
        self._first: dict[str, Code] = {}

    def state(self, stated: Mapping[str, Code], *, parts: Sequence[str]) -> None:
        """A worker was admitted that states this code; only that of the run's parts is kept."""
        modules = {module_of(part) for part in parts}
        self._first = {module: code for module, code in stated.items() if module in modules} | self._first

    def difference(self, stated: Mapping[str, Code]) -> str:
        """The difference between the run's code and a worker's; "" if there is none."""
        for module, code in stated.items():
            first = self._first.get(module, code)
            if first.hash != code.hash:
                of_run = f"{module} of this run is {first.hash} ({first.place})"
                return f"{of_run}, and differs from {code.hash} ({code.place})"
        return ""

    def forget(self) -> None:
        """The code was changed on purpose: the next worker states it."""
        self._first = {}

    def record(self) -> dict[str, Code]:
        """The code as a checkpoint keeps it."""
        return self._first.copy()

    def restore(self, kept: Mapping[str, Code]) -> None:
        """The code in a checkpoint."""
        self._first = dict(kept)
