"""`rl-worker`, which is `python -m rl_worker` too."""

import gc
from typing import NoReturn


def main() -> NoReturn:
    """Start without looking for garbage among what is imported: a fifth of the time. run_program begins to look."""
    gc.disable()
    from rl_worker import cli

    cli.main()


if __name__ == "__main__":
    main()
