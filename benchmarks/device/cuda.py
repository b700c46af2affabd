"""
A GPU against the CPU: the same gradients, and environment steps a second by number of environments.

Prints one row for each preset. Without a GPU the CPU is compared with itself.
"""

import time
from dataclasses import replace
from typing import Any

import msgspec
import torch

from ps_common.settings.run_files import load_preset
from ps_common.settings.run_spec import A3CSettings, RunSpec
from rl_agent.agent import build_agent, collector_for
from rl_agent.environments.make import closing, make_environments
from rl_agent.networks.flat_network import FlatNetwork

OF_EACH_METHOD = (
    "cartpole-a3c", "cartpole-a3c-lstm", "cartpole-n-step-q", "cartpole-one-step-q", "cartpole-one-step-sarsa",
    "pong", "pong-a3c", "atari", "atari-a3c-lstm", "pong-one-step-sarsa",
)  # fmt: skip
TIMED = ("cartpole", "pong", "atari")
COUNTS = (16, 64, 256)
TRIAL_SECONDS = 0.7  # of one number of environments, after the first unroll


def in_one_batch(run: RunSpec) -> RunSpec:
    """The run with the whole unroll as one batch: a device draws the minibatches of A3C with a generator of its own."""
    if isinstance(run.algorithm, A3CSettings):
        return msgspec.structs.replace(run, algorithm=msgspec.structs.replace(run.algorithm, minibatches=1))
    return run


def gradient_difference(run: RunSpec, device: torch.device) -> tuple[float, float]:
    """
    The largest difference of an element of the first gradient of one unroll, on `device` and on the CPU, as a share of
    the largest element; and the difference of the norms as a share.
    """
    gradients = []
    environments = make_environments(run.environment, count=4, with_screen=False)
    try:
        actor = build_agent(run, environments, device=torch.device("cpu"), seed=1)
        weights = FlatNetwork(actor.network).weights.clone()
        actor.begin_unroll(0)
        trajectory = collector_for(actor, environments, seed=1).collect()
        for place in (torch.device("cpu"), device):
            agent = build_agent(run, environments, device=place, seed=1)
            network = FlatNetwork(agent.network)
            network.load(weights)
            if agent.target_network is not None:
                FlatNetwork(agent.target_network).load(weights)
            agent.begin_unroll(0)
            states: dict[str, Any] = {
                name: tuple(part.to(place) for part in getattr(trajectory, name))
                for name in ("initial_state", "final_state")
            }
            batch = next(iter(agent.batches(replace(trajectory, **states))))
            gradients.append(network.gradient_of(agent.loss(batch).total, clip=0.0))
    finally:
        environments.close()
    (expected, norm), (found, found_norm) = gradients
    return float((found - expected).abs().max() / expected.abs().max()), abs(found_norm - norm) / norm


def steps_per_second(run: RunSpec, count: int, device: torch.device) -> float:
    """Environment steps a second of what a worker does without a server: unrolls, losses, gradients."""
    with closing(make_environments(run.environment, count=count, with_screen=False)) as environments:
        agent = build_agent(run, environments, device=device, seed=0)
        network = FlatNetwork(agent.network)
        collector = collector_for(agent, environments, seed=0)
        began, steps = time.monotonic(), -1
        while steps <= 0 or time.monotonic() - began < TRIAL_SECONDS:
            if steps == 0:
                began = time.monotonic()  # the first unroll also loads and allocates
            trajectory = collector.collect()
            for batch in agent.batches(trajectory):
                with network.learning():
                    network.gradient_of(agent.loss(batch).total, clip=agent.gradient_clip)
            steps = 0 if steps < 0 else steps + trajectory.steps
        return steps / max(time.monotonic() - began, 1e-9)


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(f"device {device}: {torch.cuda.get_device_name() if device.type == 'cuda' else 'no GPU'}")
    for name in OF_EACH_METHOD:
        run = in_one_batch(load_preset(name))
        for is_exact in (False, True):
            torch.backends.cudnn.allow_tf32 = not is_exact
            worst, norm = gradient_difference(run, device)
            print(f"gradient of {name}, tf32 {not is_exact}: elements differ by {worst:.1e}, norms by {norm:.1e}")
    torch.backends.cudnn.allow_tf32 = True
    places = dict.fromkeys((torch.device("cpu"), device))
    for name in TIMED:
        run = load_preset(name)
        for count in COUNTS:
            speeds = {place: steps_per_second(run, count, place) for place in places}
            each = ", ".join(f"{place.type} {speed:,.0f}" for place, speed in speeds.items())
            print(f"steps/s of {name} with {count} environments and one thread: {each}", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
