"""A trial of an environment, a network and an algorithm before a run begins with them."""
