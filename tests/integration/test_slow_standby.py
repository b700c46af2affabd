"""A real standby behind a link that becomes slow: training goes on, and the standby is in sync again afterwards."""

from contextlib import closing

import pytest

from tests.integration.processes import Programs, status_of, wait_for
from tests.integration.slow_link import SlowLink

pytestmark = pytest.mark.timeout(300)  # four programs that import torch, one after another

PARAMETERS = 200_000
UPDATES = 300  # of 0.8 MB each, with room for 20 in the worker's resend buffer
SLOW = 250_000.0  # bytes a second: an update takes three seconds, all of them a quarter of an hour


@pytest.mark.nightly
def test_a_standby_on_a_slow_link_is_dropped_and_training_goes_on(programs: Programs) -> None:
    primary, first = programs.start_server("--checkpoint-seconds", "1")
    with closing(SlowLink(first)) as link:
        folder = programs.folder / "standby"
        standby, second = programs.start_server("--standby-of", link.endpoint, run_dir=folder)
        programs.start("tests.integration.integer_worker", first, "seeds", "1", "1", str(PARAMETERS))
        wait_for(lambda: "follows as the standby" in primary.output, program=primary)
        in_sync = status_of(first).standby
        assert in_sync is not None
        assert (in_sync.address, in_sync.phase) == (second, "in sync")

        link.down.bytes_per_second = SLOW
        worker = programs.start("tests.integration.integer_worker", first, "pushes", str(UPDATES), "2", str(PARAMETERS))
        wait_for(lambda: status_of(first).updates >= 1 + UPDATES, program=worker)
        wait_for(lambda: "cannot keep up and is dropped" in primary.output, program=primary)
        dropped = status_of(first).standby
        assert dropped is not None
        assert dropped.drops >= 1
        wait_for(lambda: "not in sync with" in standby.output, program=standby)

        link.down.bytes_per_second = None
        wait_for(lambda: getattr(status_of(first).standby, "phase", "") == "in sync", program=primary)
        wait_for(lambda: status_of(second).version == status_of(first).version == 2 + UPDATES)
