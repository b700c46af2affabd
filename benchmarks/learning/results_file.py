"""
Rows of measured runs in a file of JSON lines. Each is written as it ends: a measurement that is stopped goes on later.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class ResultsFile:
    """Rows that differ in the values of `keys`."""

    def __init__(self, path: Path, keys: Sequence[str]) -> None:
        self._path, self._keys = path, keys
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            text = path.read_text()
            whole = text[: text.rfind("\n") + 1]  # a measurement that was killed may have left half a line
            if whole != text:
                path.write_text(whole)
            self.rows = [json.loads(line) for line in whole.splitlines()]
        self._known = {self._key(row) for row in self.rows}

    def has(self, key: tuple[Any, ...]) -> bool:
        """Whether the run with these values has been measured."""
        return key in self._known

    def add(self, row: dict[str, Any]) -> None:
        """Write a row."""
        self.rows.append(row)
        self._known.add(self._key(row))
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[key] for key in self._keys)
