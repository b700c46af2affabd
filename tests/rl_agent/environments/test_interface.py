"""The promises of the environments' interface, checked with real games of ALE and of classic control."""

import gymnasium
import numpy as np
import pytest

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import Environment
from rl_agent.environments.interface import Environments, Stepped
from rl_agent.environments.make import make_environments
from rl_agent.environments.spaces import DiscreteActions
from tests.rows import row

CARTPOLE = Environment(id="CartPole-v1")
# Without no-ops and sticky actions an ALE game is the same each time.
PONG = Environment(id="ALE/Pong-v5", preprocessing="atari42", noop_max=0)


OLD_ATARI_IDS = {
    "PongDeterministic-v4": "ALE/Pong-v5",
    "BreakoutDeterministic-v0": "ALE/Breakout-v5",
    "Pong-v5": "ALE/Pong-v5",
    "Pong-ram-v0": "ALE/Pong-v5",
    "ALE/PongNoFrameskip-v4": "ALE/Pong-v5",
    "MontezumaRevenge-ramDeterministic-v4": "ALE/MontezumaRevenge-v5",
}


def changed(settings: Environment, **changes: object) -> Environment:
    values = {name: getattr(settings, name) for name in Environment.__struct_fields__}
    return Environment(**values | changes)


def play(environments: Environments, actions: list[int], *, seed: int = 0) -> list[Stepped]:
    """All environments take the same actions."""
    environments.reset(seed)
    played = []
    for action in actions:
        stepped = environments.step(np.full(environments.count, action))
        played.append(stepped)
    environments.close()
    return played


def some_actions(length: int, actions: int) -> list[int]:
    chosen: list[int] = np.random.default_rng(0).integers(actions, size=length).tolist()
    return chosen


def test_cartpole_is_played_exactly_as_gymnasium_plays_it() -> None:
    """Every row against a plain environment that is reset by hand: seeds, rewards, ends, first and last ones."""
    count, seed = 3, 11
    environments = make_environments(changed(CARTPOLE, max_episode_steps=20), count=count)
    plain = [gymnasium.make("CartPole-v1", max_episode_steps=20) for _ in range(count)]
    expected = np.array([game.reset(seed=seed + place)[0] for place, game in enumerate(plain)])
    np.testing.assert_array_equal(environments.reset(seed), expected)
    ends = 0
    for step in range(150):
        actions = np.random.default_rng(step).integers(2, size=count)
        stepped = environments.step(actions)
        for place, game in enumerate(plain):
            last, reward, terminated, truncated, _ = game.step(actions[place])
            assert (stepped.rewards[place], stepped.terminated[place]) == (reward, terminated)
            assert stepped.truncated[place] == truncated
            if terminated or truncated:
                ends += 1
                assert stepped.final_observations is not None
                np.testing.assert_array_equal(stepped.final_observations[place], last)
                last, _ = game.reset()
            np.testing.assert_array_equal(stepped.observations[place], last)
    assert ends > 10
    for game in plain:
        game.close()
    environments.close()


def test_an_ale_game_that_ends_begins_anew_in_the_same_step() -> None:
    environments = make_environments(changed(PONG, max_episode_steps=30), count=2)
    first = environments.reset(0)
    before = first
    for action in some_actions(30, 6):
        previous, stepped = before, environments.step(np.full(2, action))
        before = stepped.observations
    environments.close()
    assert stepped.truncated.all()
    np.testing.assert_array_equal(stepped.observations, first)
    assert stepped.final_observations is not None
    np.testing.assert_array_equal(stepped.final_observations[:, :-1], previous[:, 1:], "the last one goes on from it")
    assert (stepped.final_observations != first).any()


@pytest.mark.parametrize(
    ("settings", "subset"),
    [(CARTPOLE, (1, 0)), (CARTPOLE, (1,)), (PONG, (5, 0, 2))],
    ids=str,
)
def test_actions_of_the_policy_are_those_of_the_subset(settings: Environment, subset: tuple[int, ...]) -> None:
    chosen = some_actions(40, len(subset))
    of_subset = make_environments(changed(settings, actions=subset), count=1)
    assert of_subset.actions == DiscreteActions(len(subset))
    played = play(of_subset, chosen)
    natively = play(make_environments(settings, count=1), [subset[action] for action in chosen])
    for one, other in zip(played, natively, strict=True):
        np.testing.assert_array_equal(one.observations, other.observations)
    other_way = play(make_environments(settings, count=1), [action % 2 for action in chosen])
    assert any((one.observations != other.observations).any() for one, other in zip(played, other_way, strict=True))


def test_what_cannot_be_learned_is_refused_in_one_sentence_with_the_flag() -> None:
    for settings, sentence in [
        (Environment(id="Nope-v0"), "--environment Nope-v0: "),
        (Environment(id="CartPole-v99"), "--environment CartPole-v99: .*`v1`"),
        (Environment(id="no id"), "--environment no id: "),
        (Environment(id="ALE/Nope-v5"), "--environment ALE/Nope-v5: "),
        (Environment(id="ALE/Pong-v4"), "--environment ALE/Pong-v4: .*ALE/Pong-v5"),
        *[
            (Environment(id=old), f"--environment {old}: .*; this Atari game is {now} now, with --frame-skip and")
            for old, now in OLD_ATARI_IDS.items()
        ],
        (Environment(id="tabular/CliffWalking-v0"), "--environment tabular/CliffWalking-v0: .*jax"),
        (Environment(id="no.module:Name-v0"), "--environment no.module:Name-v0: no.module cannot be imported here"),
        (Environment(id="Pendulum-v1", actions=(0,)), "--actions: Pendulum-v1 has the action space Box"),
        (changed(CARTPOLE, actions=(0, 2)), "--actions 2: CartPole-v1 has actions 0 to 1"),
        (changed(PONG, actions=(0, 6)), "--actions 6: ALE/Pong-v5 has actions 0 to 5"),
        (changed(CARTPOLE, preprocessing="atari84"), "--preprocessing atari84: not for CartPole-v1"),
        (changed(PONG, preprocessing="none"), "--preprocessing none: not for ALE/Pong-v5; use one of atari84, "),
    ]:
        with row(settings, sentence):
            with pytest.raises(SettingsError, match=f"^{sentence}") as raised:
                make_environments(settings, count=1)
            assert "\n" not in str(raised.value)
