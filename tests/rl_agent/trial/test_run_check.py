"""A run that no worker could train is refused before anything is started, in one sentence that names the flag."""

import socket
from pathlib import Path
from typing import Any

import pytest

from ps_common.errors import SettingsError
from ps_common.settings.run_files import load_preset, presets
from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import RunSpec
from rl_agent.trial.run_check import check_run
from rl_cluster.addresses import check_listening
from rl_cluster.trial import check_apart
from tests.extras import skip_without_package
from tests.rl_agent.custom_environments import LINE, line_with


def a_run(environment: str, **settings: Any) -> RunSpec:
    return with_settings(RunSpec(), {"environment.id": environment} | settings, source="test")


REFUSED = [
    ("ALE/Pnog-v5", {}, "--environment ALE/Pnog-v5: .*Did you mean: `Pong`"),
    ("CartPoole-v1", {}, "--environment CartPoole-v1: .*Did you mean: `CartPole`"),
    (
        "nowhere:Line-v0",
        {},
        "--environment nowhere:Line-v0: nowhere cannot be imported here: No module named 'nowhere'",
    ),
    (".here:Line-v0", {}, "--environment .here:Line-v0: .here is not a module name"),
    ("json:Line-v0", {}, "--environment json:Line-v0: Environment `Line` doesn't exist"),
    ("CartPole-v1", {"environment.actions": [0, 2]}, "--actions 2: CartPole-v1 has actions 0 to 1"),
    ("ALE/Pong-v5", {"environment.actions": [6]}, "--actions 6: ALE/Pong-v5 has actions 0 to 5"),
    ("Pendulum-v1", {"environment.actions": [0]}, "--actions: Pendulum-v1 has the action space Box"),
    ("CartPole-v1", {"environment.preprocessing": "atari84"}, "--preprocessing atari84: not for CartPole-v1"),
    ("Pendulum-v1", {"algorithm.name": "n_step_q"}, "--algorithm n_step_q: needs one discrete action a step"),
    ("CartPole-v1", {"algorithm.name": "one_step_q", "network.lstm": 8}, "--algorithm one_step_q: .*--lstm"),
    ("CartPole-v1", {"network.name": "conv84"}, "--network conv84: needs frames"),
    ("CartPole-v1", {"network.normalization": "random_play"}, "--normalization random_play: has one mean for all"),
    ("MinAtar/Breakout-v1", {"network.normalization": "random_play"}, "--normalization random_play: has one mean"),
    ("CartPole-v1", {"algorithm.epochs": 2}, "--epochs 2: after the first pass .* --surrogate clip"),
    ("ALE/Pong-v5", {"network.normalization": "running"}, "--normalization running: needs numbers"),
]


@pytest.mark.parametrize(("environment", "settings", "sentence"), REFUSED, ids=str)
def test_what_does_not_exist_or_fit_is_refused(environment: str, settings: dict[str, Any], sentence: str) -> None:
    if environment.startswith("MinAtar/"):
        skip_without_package(a_run(environment))
    with pytest.raises(SettingsError, match=f"^{sentence}"):
        check_run(a_run(environment, **settings), imports=())


@pytest.mark.parametrize("environment", ["CartPole-v1", "ALE/Pong-v5", "FrozenLake-v1", "Blackjack-v1", "Pendulum-v1"])
def test_what_can_be_trained_passes_and_gets_a_start_card(environment: str) -> None:
    card = check_run(a_run(environment), imports=())
    assert card[0].startswith("  observations")
    if environment == "Blackjack-v1":
        assert check_apart(a_run(environment), imports=(), device="cpu") == card


@pytest.mark.parametrize("preset", presets())
def test_every_preset_passes(preset: str) -> None:
    run = load_preset(preset)
    skip_without_package(run)
    check_run(run, imports=())


BUGS = [
    ("raise at import", "import gymnasium, numpy", "import gymnasium, numpy\n1 / 0", "ZeroDivisionError: division by"),
    ("no syntax", "import gymnasium, numpy", "import gymnasium numpy", "SyntaxError"),
    ("missing package", "import gymnasium, numpy", "import gymnasium, nonesuch", "No module named 'nonesuch'"),
    ("bad constructor", "self.render_mode = render_mode", "self.sizes[0] = 1", "AttributeError.*own.py, line 12"),
    (
        "old reset",
        "return numpy.zeros(2, numpy.float32), {}",
        "return numpy.zeros(2, numpy.float32)",
        r"was not a tuple of the form .\(obs, info\)",
    ),
    ("bad step", "self.t += 1", "self.t += self.speed", "AttributeError: 'Line' object has no attribute 'speed'"),
    ("old step", "self.t == 20, False, {}", "self.t == 20, {}", "step"),
    ("actions", "spaces.Discrete(2)", "spaces.Box(0, 5, (1,), numpy.int64)", "its action space is Box"),
    ("observations", "spaces.Box(-1, 1, (2,), numpy.float32)", "spaces.Graph(None, None)", "Graph|fails when"),
]


@pytest.mark.parametrize(("bug", "before", "after", "words"), BUGS, ids=[bug for bug, *_ in BUGS])
def test_a_bug_that_shows_at_once_is_told_with_its_place(
    folder: Path, bug: str, before: str, after: str, words: str
) -> None:
    (folder / "own.py").write_text(line_with(before, after))
    with pytest.raises(SettingsError, match=f"^--environment own:Line-v0: .*({words})"):
        check_run(a_run("own:Line-v0"), imports=())


SEEN = "gymnasium.spaces.Box(-1, 1, (2,), numpy.float32)"
FIRST, NEXT = "numpy.zeros(2, numpy.float32)", "numpy.array([self.t / 20, 0], numpy.float32)"
UNUSUAL = [
    {SEEN: "gymnasium.spaces.Discrete(30)", FIRST: "0", NEXT: "self.t"},
    {SEEN: "gymnasium.spaces.Box(-1, 1, (), numpy.float32)", FIRST: "numpy.float32(0)", NEXT: "numpy.float32(1)"},
    {"gymnasium.spaces.Discrete(2)": "gymnasium.spaces.Box(-1, 1, (), numpy.float32)", "float(action)": "1.0"},
    {"gymnasium.spaces.Discrete(2)": "gymnasium.spaces.Box(-1, 1, (2, 3), numpy.float32)", "float(action)": "1.0"},
]


@pytest.mark.parametrize("changes", UNUSUAL, ids=str)
def test_unusual_spaces_that_can_be_learned_pass(folder: Path, changes: dict[str, str]) -> None:
    changed = LINE
    for before, after in changes.items():
        assert before in changed
        changed = changed.replace(before, after)
    (folder / "own.py").write_text(changed)
    check_run(a_run("own:Line-v0"), imports=())


def test_the_check_apart_says_the_same_and_survives_a_crash(folder: Path) -> None:
    check_apart(a_run("CartPole-v1"), imports=(), device="cpu")
    with pytest.raises(SettingsError, match=r"^--actions 7: CartPole-v1 has actions 0 to 1$"):
        check_apart(a_run("CartPole-v1", **{"environment.actions": [7]}), imports=(), device="cpu")
    (folder / "own.py").write_text(LINE.replace("self.t += 1", "import os; os.abort()"))
    with pytest.raises(
        SettingsError, match=r"^--environment own:Line-v0: a trial of it ended at once: killed by SIGABRT"
    ):
        check_apart(a_run("own:Line-v0"), imports=(), device="cpu")


def test_a_trial_that_a_signal_ends_is_no_start_card(folder: Path) -> None:
    raises = "from ps_common.program.stop_signals import Interrupted; raise Interrupted"
    (folder / "own.py").write_text(LINE.replace("self.t += 1", raises))
    sentence = "--environment own:Line-v0: a trial of it ended at once: a signal from elsewhere asked it to leave"
    with pytest.raises(SettingsError, match=f"^{sentence}$"):
        check_apart(a_run("own:Line-v0"), imports=(), device="cpu")


def test_an_address_that_is_taken_or_not_of_this_machine_is_refused() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for host in ("127.0.0.1", "0.0.0.0"):
            with pytest.raises(SettingsError, match=f"--port {port}: cannot listen there: Address already in use"):
                check_listening(host, port)
    check_listening("127.0.0.1", port)
    for host in ("203.0.113.1", "no-such-host.invalid"):
        with pytest.raises(SettingsError, match=f"^--host {host} --port 0: cannot listen there: "):
            check_listening(host, 0)
