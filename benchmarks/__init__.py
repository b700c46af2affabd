"""Measurements: ours and the alternative, taken in turn in one run. Not collected by pytest; `make bench`."""
