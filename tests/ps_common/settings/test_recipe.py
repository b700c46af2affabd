"""A newcomer's first command, `--environment ID`, starts from one recipe."""

import pytest

from ps_common.program.flags import parse_with_run
from ps_common.settings.run_files import load_preset, on_another_game, recipe_for
from ps_common.settings.run_settings import keyword_of, run_from_dict, with_keywords, with_settings
from ps_common.settings.run_spec import ALGORITHM_SETTINGS, A3CSettings, RunSpec
from rl_worker.settings import WorkerSettings

ELSEWHERE = ["Pendulum-v1", "MinAtar/Breakout-v1", "my.games:Line-v0", "VizdoomBasic-v1"]
EACH_METHOD = [None, *ALGORITHM_SETTINGS]


def typed(*arguments: str) -> RunSpec:
    flags = ("--server", "127.0.0.1:1", *arguments)
    return parse_with_run(WorkerSettings, flags, prog="rl-worker").run


@pytest.mark.parametrize(
    ("environment", "algorithm"),
    [*((one, None) for one in ELSEWHERE[1:]), *((ELSEWHERE[0], one) for one in EACH_METHOD)],
)
def test_rewards_are_clipped_on_atari_alone_unless_asked(environment: str, algorithm: str | None) -> None:
    """Also with another method, in a file without the setting, and in another optimizer."""
    method = [] if algorithm is None else ["--algorithm", algorithm]
    here = typed("--environment", environment, *method, "--optimizer", "rmsprop").algorithm
    assert here.reward_clip == 0.0
    assert typed("--environment", "ALE/Boxing-v5", *method).algorithm.reward_clip == 1.0
    assert typed("--environment", environment, *method, "--reward-clip", "2").algorithm.reward_clip == 2.0
    section = {} if algorithm is None else {"algorithm": {"name": algorithm}}
    of_a_file = run_from_dict({"environment": {"id": environment}, **section}, source="test")
    assert of_a_file.algorithm.reward_clip == 0.0
    if algorithm not in (None, "a3c", "dqn", "sac"):
        assert here.reward_normalization == "returns"
        assert getattr(here, "epsilon_anneal_steps", 0) == 100_000


def test_a_game_of_ale_has_the_settings_of_the_preset_for_many_games() -> None:
    run = recipe_for("ALE/Boxing-v5")
    expected = on_another_game(load_preset("atari"), "ALE/Boxing-v5", (), source="a test")
    assert run.to_dict() | {"preset": ""} == expected.to_dict() | {"preset": ""}
    assert (run.preset, run.environment.actions, run.budget.until_return) == ("Boxing-v5", (), None)


def test_a_preset_for_vectors_takes_no_dense_layers_to_images() -> None:
    """An explicit mlp would flatten them silently."""
    for name in ("cartpole", "cartpole-a3c", "inverted-pendulum"):
        run = load_preset(name)
        assert (run.network.name, run.network.normalization != "running") == ("auto", True)


def test_beside_an_lstm_the_recipe_has_no_self_imitation_unless_asked() -> None:
    def weight(*more: str) -> float:
        algorithm = typed("--environment", "MountainCarContinuous-v0", *more).algorithm
        assert isinstance(algorithm, A3CSettings)
        return algorithm.imitation_weight

    assert weight() == weight("--lstm", "0") == weight("--hidden", "32") > 0
    assert weight("--lstm", "32") == weight("--lstm=32") == 0
    assert weight("--lstm", "32", "--imitation-weight", "0.2") == 0.2


@pytest.mark.parametrize("algorithm", EACH_METHOD)
@pytest.mark.parametrize("environment", ["ALE/Pong-v5", *ELSEWHERE])
def test_an_environment_that_is_chosen_later_gives_the_run_that_names_it_at_once(
    environment: str, algorithm: str | None
) -> None:
    """As ParameterServerClient(environment=…) and train(environment=…) choose it."""
    section = {} if algorithm is None else {"algorithm": {"name": algorithm}}
    chosen = {"environment.id": environment} | ({} if algorithm is None else {"algorithm.name": algorithm})
    at_once = run_from_dict({"environment": {"id": environment}, **section}, source="test")
    assert with_settings(RunSpec(), chosen, source="test") == at_once
    assert (
        with_settings(run_from_dict(section, source="test"), {"environment.id": environment}, source="test") == at_once
    )
    keywords = {keyword_of(key): value for key, value in chosen.items()}
    assert with_keywords(RunSpec(), keywords, source="test")[0] == at_once
    typed_too = with_settings(RunSpec(), chosen | {"algorithm.reward_clip": 1.0}, source="test")
    assert typed_too.algorithm.reward_clip == 1.0
