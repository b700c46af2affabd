"""The start card says what a run sees, does and learns with."""

import re

import numpy as np
import torch

from ps_common.settings.run_files import load_preset, recipe_for
from ps_common.settings.run_settings import with_settings
from rl_agent.environments.spaces import BoxActions, DiscreteActions, MultiDiscreteActions, packed_space
from rl_agent.trial.start_card import LABEL_COLUMNS, start_card
from rl_eval.spaces_record import PolicySpaces
from tests.rl_agent.observation_spaces import numbers, pixels
from tests.rows import row


def card(name: str, spaces: PolicySpaces, *, preset: bool = False) -> dict[str, str]:
    lines = start_card(load_preset(name) if preset else recipe_for(name), spaces)
    return {line[2 : LABEL_COLUMNS + 2].strip(): line[LABEL_COLUMNS + 2 :] for line in lines}


def test_it_tells_the_recipe_of_a_vector() -> None:
    assert card("Pendulum-v1", PolicySpaces(numbers(3), BoxActions(np.float32([-2]), np.float32([2])))) == {
        "observations": "float32 [3], numbers normalised by those seen so far",
        "actions": "a real number",
        "network": "mlp on 3",
        "rewards": "not clipped, divided by the deviation of their discounted sum; scores are the true ones",
        "method": "a3c with the clipped surrogate (PPO): 64 steps × 8 environments a worker and unroll, discount 0.99, "
        "GAE 0.95, self-imitation 0.1, 5 epochs of 4 minibatches",
        "optimizer": "adam, learning rate 0.001 to 0.0001 at step 1,000,000",
    }


def test_it_tells_which_network_images_get_and_that_atari_rewards_are_clipped() -> None:
    shown = card("my.games:Fruit-v0", PolicySpaces(pixels(3, 64, 64), DiscreteActions(4)))
    assert (shown["network"], shown["actions"]) == ("conv on 3×64×64", "one of 4")
    assert shown["observations"].endswith("bytes divided by 255")
    atari = card("pong", PolicySpaces(pixels(2, 40, 40), DiscreteActions(3)), preset=True)
    assert atari["rewards"] == "clipped to ±1; scores are the true ones"
    assert atari["observations"].endswith("normalised by random play")
    assert "GAE 0.97, self-imitation 0.3, 2 epochs of 16 minibatches" in atari["method"]


def test_it_tells_the_sizes_of_minibatches_that_are_not_equal() -> None:
    """Those that torch makes of the steps of an unroll, or of environments where the network has a memory."""
    spaces = PolicySpaces(numbers(3), BoxActions(np.float32([-2]), np.float32([2])))
    for lstm, minibatches, words in [
        (0, 7, "7 minibatches of 73 or 74 steps"),
        (0, 8, "8 minibatches"),
        (32, 3, "3 minibatches of 2 or 3 environments"),
    ]:
        with row(lstm, minibatches):
            settings = {"network.lstm": lstm, "algorithm.minibatches": minibatches, "algorithm.imitation_weight": 0.0}
            run = with_settings(recipe_for("Pendulum-v1"), settings, source="test")
            method = next(line for line in start_card(run, spaces) if line.lstrip().startswith("method"))
            assert method.endswith(words)
            count = run.environment.envs * (1 if lstm else run.algorithm.unroll_length)
            sizes = {len(part) for part in torch.arange(count).tensor_split(minibatches)}
            assert sizes == set(map(int, re.findall(r"(\d+)(?= or| steps| env)", words))) or len(sizes) == 1


def test_it_tells_every_part_of_an_observation_and_every_choice() -> None:
    parts = packed_space([("vector", (5,), np.float32), ("image", (1, 9, 9), np.uint8), ("mask", (5,), np.uint8)])
    shown = card("my.games:Mixed-v0", PolicySpaces(parts, MultiDiscreteActions((2, 3))))
    assert (shown["network"], shown["actions"]) == ("mlp on 5, conv on 1×9×9", "2 choices, of 2, 3")
    assert shown["observations"].endswith("numbers normalised by those seen so far")
    own = with_settings(recipe_for("my.games:Mixed-v0"), {"network.name": "my_pkg:Torso"}, source="test")
    seen = start_card(own, PolicySpaces(parts, DiscreteActions(5)))[0]
    assert seen.endswith(", as they are"), "such a torso reads the parts itself"


def test_it_warns_of_observations_that_take_a_gibibyte_in_each_worker() -> None:
    spaces = PolicySpaces(pixels(3, 512, 512), DiscreteActions(4))
    shown = card("my.games:Camera-v0", spaces)["memory"]
    assert shown == "1.1 GiB of observations in each worker; a smaller --envs or --unroll-length takes less"
    fewer = with_settings(recipe_for("my.games:Camera-v0"), {"environment.envs": 4}, source="test")
    assert not any("memory" in line for line in start_card(fewer, spaces))
    longer = with_settings(recipe_for("CartPole-v1"), {"algorithm.unroll_length": 10_000_000 // 100}, source="test")
    assert "memory" not in str(start_card(longer, PolicySpaces(numbers(4), DiscreteActions(2))))
    many = PolicySpaces(numbers(400), DiscreteActions(2))
    assert start_card(longer, many)[-1].endswith("takes less")
