"""Environments whose steps are dear: a simulator of 20 ms a step, ps-rl's SAC and Stable-Baselines3's in turn."""
