"""Tests skip an environment whose package is an extra that is not installed."""

import pytest

from ps_common.settings.run_spec import RunSpec
from rl_cluster.catalogue import family_of


def skip_without_package(run: RunSpec) -> None:
    family = family_of(run.environment.id)
    pytest.importorskip(family.package, reason=f"{run.environment.id} needs {family.remedy}")
