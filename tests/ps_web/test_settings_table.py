"""The table of settings that the page shows beside those of a run."""

from ps_common.settings.run_settings import flat_settings
from ps_common.settings.run_spec import RunSpec
from ps_web.index import settings_table


def test_each_setting_of_a_section_has_its_text_and_each_algorithm_its_own_defaults() -> None:
    found = settings_table()
    undocumented = {key for key in flat_settings(RunSpec().to_dict()) if "." in key} - found["help"].keys()
    assert undocumented == {"algorithm.name", "optimizer.name"}
    assert found["help"]["schedule.learning_rate"] == "step size of the optimizer until T = anneal_start"
    assert found["defaults"]["schedule"]["learning_rate"] == RunSpec().schedule.learning_rate
    unrolls = {name: values["unroll_length"] for name, values in found["defaults"]["algorithm"].items()}
    assert unrolls == {"a3c": 20, "one_step_q": 5, "one_step_sarsa": 5, "n_step_q": 5, "dqn": 16, "sac": 8}
