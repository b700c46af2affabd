"""`python -m ps_track`: sends a run to an experiment tracker. `--track` starts it."""

from ps_common.program.start import start

if __name__ == "__main__":
    start("ps_track.cli", "track")
