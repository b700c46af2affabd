"""The run as other servers have it: a standby, and the shards after the first. Pure: `now` is an argument."""
