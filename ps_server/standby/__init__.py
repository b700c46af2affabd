"""The standby: a machine that follows the server of a run, and becomes the next one. Pure: `now` is an argument."""
