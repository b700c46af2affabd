"""The worker's own flags: what they default to, and the one sentence when they make no sense."""

import pytest

from ps_common.errors import SettingsError
from rl_worker.settings import WorkerSettings
from tests.rows import row


def test_invalid_values_are_refused_with_the_flag() -> None:
    for flags, sentence in [
        ({"server": "localhost"}, "--server localhost: must be HOST:PORT"),
        ({"server": "./"}, "--server ./: is a folder; name the file endpoint in a run folder"),
        ({"server": "tcp://localhost:5555"}, "--server tcp://localhost:5555: must be HOST:PORT"),
        ({"server": "localhost:99999"}, "--server localhost:99999: must be HOST:PORT"),
        ({"threads": 0}, "--threads 0: must be 1 to "),
        ({"patience_minutes": 0.0}, "--patience-minutes 0.0: must be "),
        ({"resend_mib": -1.0}, "--resend-mib -1.0: must be 0 to 16777216"),
        ({"resend_mib": float("nan")}, "--resend-mib nan: must be 0 to 16777216"),
        ({"name": ""}, "--name '': must have 1 to 100 letters"),
        ({"name": "x" * 101}, "--name 'x+': must have 1 to 100 letters"),
        ({"name": "my worker"}, "--name 'my worker': must have .* for example my-worker"),
        ({"name": "a\u202eb"}, r"--name 'a\\u202eb': must have .* for example a-b"),
    ]:
        with row(flags, sentence), pytest.raises(SettingsError, match=f"^{sentence}"):
            WorkerSettings(**{"server": "localhost:5555"} | flags)  # type: ignore[arg-type]
