"""A Python program that starts a run in a thread which ends at once, as a notebook's may: started_run FOLDER."""

import sys
import threading

from ps_rl import train


def begin() -> None:
    run = train("cartpole-a3c", workers=1, run_dir=sys.argv[1])
    assert run._child is not None
    print("pids", run._child.pid, flush=True)
    next(iter(run))  # a run that was looked at is not waited for at the end


if __name__ == "__main__":
    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    threading.Event().wait()
