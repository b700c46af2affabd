"""`rl-worker`, also `python -m rl_worker`."""

import sys
from functools import partial

from ps_common.program.start import start

MEMBER = "rl_worker.gang_member"

is_gang = any(word.startswith("--gang") for word in sys.argv)
main = partial(start, "rl_worker.cli", "work", leaves_in_order=True, forks={MEMBER: (MEMBER,)} if is_gang else None)

if __name__ == "__main__":
    main()
