"""The experiment trackers that a run can be sent to, and the packages that each needs."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal

from ps_common.errors import SettingsError

TrackerName = Literal["wandb", "mlflow"]
# The packages of each extra that ps_track imports.
PACKAGES: dict[TrackerName, tuple[str, ...]] = {
    "wandb": ("wandb",),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
}


def check_trackers(names: Sequence[TrackerName]) -> None:
    """Raises SettingsError that names the extra when a tracker's package is not installed."""
    for name in names:
        if missing := [package for package in PACKAGES[name] if find_spec(package) is None]:
            raise SettingsError(
                f"--track {name}: {' and '.join(missing)} cannot be imported: "
                f"pip install -c constraints.txt '.[{name}]'"
            )
