"""A short `make churn`: workers killed or asked to leave every other second, and every push counted."""

import json

import pytest

from tests.integration.processes import Programs

TRIAL = """
import json
from benchmarks.trials.churn import trial
print(json.dumps(trial(seed=3, workers=4, seconds=5, every=2)), flush=True)
"""


@pytest.mark.nightly
@pytest.mark.timeout(300)  # it takes ten seconds on two idle cores
def test_no_push_of_workers_that_come_and_go_is_lost_or_doubled(programs: Programs) -> None:
    """In a process of its own: it forks, and that of the tests has threads."""
    trial = programs.start("python", "-c", TRIAL)
    assert trial.wait(240) == 0, trial.output
    found = json.loads(trial.output.splitlines()[-1])
    assert (found["lost"], found["doubled"], found["left_badly"]) == (0, 0, 0), found
    assert found["acknowledged"] > 20
    assert found["kills"] > 0, "another seed, please"
    assert found["notices"] > 0, "another seed, please"
