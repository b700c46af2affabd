"""Keyword arguments of environments and networks: settings of a run, with bounds."""

import tomllib
from typing import Any

import pytest

from ps_common.errors import SettingsError
from ps_common.program.flags import parse_with_run
from ps_common.protocol.messages import Hello
from ps_common.protocol.wire import read_to_server, to_frames
from ps_common.settings.overrides import contradiction, resumed_run
from ps_common.settings.run_settings import flags_for, keywords_of, run_from_dict
from ps_common.settings.run_spec import RunSpec
from rl_cluster.settings import ClusterSettings
from tests.rows import row

SIZED = {"size": 5, "rate": 0.5, "is_wet": True, "map": ["SF", "HG"], "pairs": [[1, 2]], "of": {"a": 1, "b": [2]}}
CUSTOM = {"id": "my_env:Env"}


def run_with(arguments: Any, **environment: Any) -> RunSpec:
    return run_from_dict({"environment": {**CUSTOM, "kwargs": arguments, **environment}}, source="a test")


def test_tables_travel_as_flags_files_and_messages() -> None:
    run = run_with(SIZED)
    assert run.environment.kwargs == SIZED
    assert run_from_dict(tomllib.loads(run.to_toml()), source="a file") == run
    assert keywords_of(run)["environment_kwargs"] == SIZED
    flags = flags_for({"environment.id": "my_env:Env", "environment.kwargs": SIZED})
    assert flags[2] == "--environment-kwargs"
    parsed = parse_with_run(ClusterSettings, flags, prog="rl-cluster")
    assert parsed.overrides["environment.kwargs"] == SIZED
    hello = Hello(
        request=1,
        worker_id="w",
        incarnation=1,
        secret="s" * 16,
        protocols=(1, 1),
        overrides={"environment.kwargs": SIZED},
        proposed_run=run.to_dict(),
    )
    sent, _ = read_to_server(list(to_frames(hello, [])))
    assert isinstance(sent, Hello)
    assert sent.proposed_run is not None
    assert contradiction(run_from_dict(sent.proposed_run, source="a worker"), sent.overrides) == ""
    assert contradiction(run, sent.overrides) == ""


def test_other_arguments_contradict_a_run_and_a_resume_keeps_its_own() -> None:
    run = run_with({"size": 5})
    other = {"environment.kwargs": {"size": 6}}
    assert contradiction(run, other).startswith('--environment-kwargs {"size": 6} contradicts')
    with pytest.raises(SettingsError, match=r"--environment-kwargs .*a resumed run keeps"):
        resumed_run(run, other)
    assert resumed_run(run, {"environment.kwargs": {"size": 5}}) == run


def test_what_is_no_plain_data_or_no_part_takes_is_refused_by_its_flag() -> None:
    for arguments, environment, named in [
        ({"size": None}, {}, "size"),
        ({"size": 2**60}, {}, "size"),
        ({"size": float("inf")}, {}, "size"),
        ({"text": "x" * 201}, {}, "text"),
        ({"text": "\x1b[2J"}, {}, "text"),
        ({"deep": [[[1]]]}, {}, "deep"),
        ({"of": {1: 2}}, {}, "of"),
        ({"a b": 1}, {}, "a b"),
        ({"render_mode": "human"}, {}, "render_mode"),
        ({"num_envs": 2}, {}, "num_envs"),
        ({f"a{number}": "x" * 100 for number in range(50)}, {}, "4096 bytes"),
        ({"size": 5}, {"id": "ALE/Pong-v5"}, "ALE/Pong-v5 takes none"),
    ]:
        with row(arguments, environment), pytest.raises(SettingsError, match=f"--environment-kwargs: .*{named}"):
            run_with(arguments, **environment)
    with pytest.raises(SettingsError, match="--network-kwargs: --network mlp takes none"):
        run_from_dict({"network": {"name": "mlp", "kwargs": {"size": 5}}}, source="a test")
