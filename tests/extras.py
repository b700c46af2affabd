"""Tests skip an environment whose package is an extra that is not installed."""

import pytest

from ps_common.settings.run_spec import RunSpec

PACKAGES = {
    "Vizdoom": "vizdoom",
    "MinAtar/": "minatar",
    **dict.fromkeys(("Inverted", "Hopper", "HalfCheetah"), "mujoco"),
    **dict.fromkeys(("LunarLander", "BipedalWalker", "CarRacing"), "Box2D"),
}  # by the beginning of an environment's id


def skip_without_package(run: RunSpec) -> None:
    for beginning, package in PACKAGES.items():
        if run.environment.id.startswith(beginning):
            pytest.importorskip(package, reason=f"{run.environment.id} needs an extra")
