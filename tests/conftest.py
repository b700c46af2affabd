"""Every run tries the same examples: a change is judged by what it changes. `make explore` tries new ones."""

from hypothesis import settings

settings.register_profile("same", max_examples=60, derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=2000, deadline=None)
settings.load_profile("same")
