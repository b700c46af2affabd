"""`make peers` and `make peers-scores`: ps-rl beside what people would pick instead, on this machine, in turn."""
