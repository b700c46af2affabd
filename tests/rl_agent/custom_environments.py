"""A module with a custom environment, and `line_with` to give it a bug."""

LINE = '''
import gymnasium, numpy

class Line(gymnasium.Env):
    """Twenty steps, a point for each action 1."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def render(self):
        return numpy.full((40, 40, 3), 10 * self.t, numpy.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return numpy.zeros(2, numpy.float32), {}

    def step(self, action):
        self.t += 1
        return numpy.array([self.t / 20, 0], numpy.float32), float(action), self.t == 20, False, {}

gymnasium.register("Line-v0", entry_point=Line)
'''


def line_with(before: str, after: str) -> str:
    """The environment with one place changed."""
    assert before in LINE, before
    return LINE.replace(before, after)
