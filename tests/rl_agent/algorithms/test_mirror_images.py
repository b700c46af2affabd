"""Mirror images: what a mirrored step is, which steps are mirrored, and what is refused."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch

from ps_common.errors import SettingsError
from ps_common.settings.run_spec import A3CSettings, Environment, NetworkSettings, RunSpec
from rl_agent.algorithms.a3c import A3C
from rl_agent.algorithms.mirror_images import MirrorImages
from rl_agent.environments.spaces import ActionSpace, BoxActions, DiscreteActions, ObservationSpace, mirrored_actions
from rl_agent.networks.compatibility import check_agent
from rl_agent.rollouts import Trajectory
from rl_eval.spaces_record import PolicySpaces
from tests.rl_agent.experience import experience, trajectory_of
from tests.rl_agent.observation_spaces import numbers, pixels

BREAKOUT = DiscreteActions(3, ("FIRE", "RIGHT", "LEFT"))
SHAPE = (2, 10, 10)
CPU = torch.device("cpu")


def images(count: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, *SHAPE), dtype=np.uint8))


def unroll(steps: int) -> Trajectory:
    """Two environments, whose actions are those of BREAKOUT."""
    ends = [""] * (steps - 1) + ["terminated"]
    seen = [experience(seed, *ends) for seed in (1, 2)]
    played = trajectory_of(*seen, recorded=lambda one: dict.fromkeys(("values", "log_probabilities"), [-1.0] * steps))
    return replace(
        played,
        observations=images((steps + 1) * 2).unflatten(0, (steps + 1, 2)),
        actions=played.actions % 3,
        rewards=played.rewards.float(),
        discounts=played.discounts.float(),
        continues=played.continues.float(),
        recorded={name: part.float() for name, part in played.recorded.items()},
    )


@pytest.mark.parametrize(
    ("names", "mirrored"),
    [
        (("FIRE", "RIGHT", "LEFT"), [0, 2, 1]),
        (("NOOP", "UPRIGHT", "DOWNLEFTFIRE", "UPLEFT", "DOWNRIGHTFIRE"), [0, 3, 4, 1, 2]),
        (("MOVE_LEFT", "MOVE_RIGHT", "ATTACK"), [1, 0, 2]),
    ],
)
def test_in_a_mirror_left_and_right_are_exchanged(names: tuple[str, ...], mirrored: list[int]) -> None:
    assert mirrored_actions(DiscreteActions(len(names), names)) == mirrored


def test_a_mirrored_step_has_the_flipped_image_and_the_exchanged_action() -> None:
    seen, actions = images(400).unsqueeze(0), torch.arange(400).unsqueeze(0) % 3
    shown, taken = MirrorImages([0, 2, 1], device=CPU, seed=0).of(seen, actions)
    mirrored = 0
    for before, action, after, exchanged in zip(seen[0], actions[0], shown[0], taken[0], strict=True):
        if torch.equal(before, after):
            assert action == exchanged
            continue
        np.testing.assert_array_equal(after, before.numpy()[:, :, ::-1])
        assert int(exchanged) == [0, 2, 1][int(action)]
        mirrored += 1
    assert mirrored == pytest.approx(200, abs=40)


@pytest.mark.parametrize("minibatches", [1, 5])
def test_each_pass_has_every_step_once_with_its_estimates_some_in_a_mirror(minibatches: int) -> None:
    settings = A3CSettings(surrogate="clip", epochs=2, minibatches=minibatches)
    mirroring = msgspec.structs.replace(settings, mirror_images=True)
    torch.manual_seed(0)
    plain = A3C.build(settings, RunSpec(), PolicySpaces(pixels(*SHAPE), BREAKOUT), device=CPU, seed=0)
    torch.manual_seed(0)
    mirrored = A3C.build(mirroring, RunSpec(), PolicySpaces(pixels(*SHAPE), BREAKOUT), device=CPU, seed=0)
    steps, passes = 30, []
    for expected, batch in zip(plain.batches(unroll(steps)), mirrored.batches(unroll(steps)), strict=True):
        for part in ("starts", "log_probabilities", "weights", "advantages", "value_targets"):
            torch.testing.assert_close(getattr(batch, part), getattr(expected, part))
        flipped = (batch.observations != expected.observations).flatten(2).any(-1)
        assert torch.equal(batch.observations[flipped], expected.observations[flipped].flip(-1))
        exchanged = torch.tensor([0, 2, 1])[expected.actions]
        assert torch.equal(batch.actions, torch.where(flipped, exchanged, expected.actions))
        assert torch.isfinite(mirrored.loss(batch).total)
        passes.append(flipped.flatten())
    together = torch.cat(passes)
    assert len(together) == 2 * 2 * steps
    assert 0.3 < float(together.float().mean()) < 0.7


@pytest.mark.parametrize(
    ("observations", "actions", "lstm", "words"),
    [
        (pixels(*SHAPE), DiscreteActions(2, ("NOOP", "LEFT")), 0, "the actions NOOP, LEFT have LEFT and not RIGHT"),
        (pixels(*SHAPE), DiscreteActions(2, ("UP", "DOWN")), 0, "no action of this environment has LEFT or RIGHT"),
        (pixels(*SHAPE), DiscreteActions(2), 0, "no action of this environment has LEFT or RIGHT"),
        (pixels(*SHAPE), BoxActions(-np.ones(1, np.float32), np.ones(1, np.float32)), 0, "no action of this"),
        (numbers(4), BREAKOUT, 0, r"needs images only, and observations are float32 \[4\]"),
        (pixels(*SHAPE), BREAKOUT, 8, "an LSTM's state is not that of the mirrored game"),
    ],
)
def test_a_game_that_has_no_mirror_image_is_refused(
    observations: ObservationSpace, actions: ActionSpace, lstm: int, words: str
) -> None:
    run = RunSpec(
        environment=Environment(id="ALE/Breakout-v5"),
        algorithm=A3CSettings(mirror_images=True),
        network=NetworkSettings(lstm=lstm),
    )
    spaces = PolicySpaces(observations, actions)
    with pytest.raises(SettingsError, match=f"--mirror-images: {words}"):
        check_agent(run, spaces)


def test_remembered_steps_are_imitated_in_a_mirror_too() -> None:
    settings = A3CSettings(mirror_images=True, imitation_weight=1.0, imitation_samples=40)
    mirroring = A3C.build(settings, RunSpec(), PolicySpaces(pixels(*SHAPE), BREAKOUT), device=CPU, seed=0)
    played = replace(unroll(40), rewards=torch.ones(40, 2))
    original = [bytes(image) for image in played.observations.flatten(0, 1).numpy()]
    list(mirroring.batches(played))
    assert mirroring._imitation is not None
    drawn = mirroring._drawn(mirroring._imitation)
    assert drawn is not None
    as_played = sum(bytes(image) in original for image in drawn[1].observations.numpy())
    turned = sum(bytes(image) in original for image in drawn[1].observations.flip(-1).numpy())
    assert as_played + turned == 40
    assert min(as_played, turned) > 5
