"""The contract between ps-server and rl-worker: protocol, settings of a run, files of a run folder."""
