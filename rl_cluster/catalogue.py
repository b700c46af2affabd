"""`rl-cluster --list`: the presets, with their environments and what each is."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ps_common.settings.run_files import load_preset, presets, what_preset_is


def print_catalogue() -> None:
    """Presets by environment, on standard output."""
    console = Console(highlight=False)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("--preset", no_wrap=True)
    table.add_column("what it is")
    environments = {preset: load_preset(preset).environment.id for preset in presets()}
    for preset, environment in sorted(environments.items(), key=lambda named: (named[1], named[0])):
        table.add_row(preset, f"{environment}: {what_preset_is(preset)}")
    console.print(table)
    console.print("Any other id that Gymnasium knows, and custom ones as module:Name-v0, can be trained too.")
