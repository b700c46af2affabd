"""The table of settings that the page shows beside those of a run."""

from ps_common.settings.run_spec import RunSpec
from ps_web.index import settings_table


def test_each_algorithm_has_its_own_defaults() -> None:
    found = settings_table()
    assert found["schedule"]["learning_rate"] == RunSpec().schedule.learning_rate
    unrolls = {name: values["unroll_length"] for name, values in found["algorithm"].items()}
    assert unrolls == {"a3c": 20, "one_step_q": 5, "one_step_sarsa": 5, "n_step_q": 5, "dqn": 16, "sac": 8}
