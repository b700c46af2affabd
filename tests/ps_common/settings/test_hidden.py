"""What looks like a secret is hidden in whatever shows the settings of a run, and nothing else is."""

import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ps_common.run_folder.commands import command_of_run
from ps_common.settings.custom_algorithm import custom_algorithm
from ps_common.settings.hidden import HIDDEN, hidden, is_secret
from ps_common.settings.overrides import contradiction
from ps_common.settings.run_files import settings_as_written
from ps_common.settings.run_settings import secrets_in, shown_run, with_settings
from ps_common.settings.run_spec import RunSpec
from tests.ps_common.generated import PRINTABLE

SECRET = "sk-not-a-real-one"
SECRETS = ["key", "api_key", "API_KEY", "apiKey", "apikey", "aws_access_key_id", "token", "authToken", "hf_tokens",
           "secret", "client_secret", "clientsecret", "password", "db_passwd", "mypassword", "credentials"]  # fmt: skip
URLS = {
    f"s3://user:{SECRET}@bucket/runs": f"s3://{HIDDEN}@bucket/runs",
    f"s3://user:a/{SECRET}@bucket/runs": f"s3://{HIDDEN}@bucket/runs",
    f"http://{SECRET}@host:80/x": f"http://{HIDDEN}@host:80/x",
    f"https://host/x?size=3&api_key={SECRET}#end": f"https://host/x?size=3&api_key={HIDDEN}#end",
    "http://host:80/some@place?size=3": "http://host:80/some@place?size=3",
}


def a_run(kwargs: dict[str, Any], **settings: Any) -> RunSpec:
    return with_settings(
        RunSpec(), {"environment.id": "my:Env", "environment.kwargs": kwargs} | settings, source="test"
    )


@pytest.mark.parametrize("name", SECRETS)
def test_a_text_whose_name_says_so_is_hidden_at_any_depth(name: str) -> None:
    assert is_secret(name)
    settings = {"a": {name: SECRET, "list": [{name: [SECRET, "x"]}], "size": 5}, name: {"deep": SECRET}}
    assert SECRET not in json.dumps(hidden(settings))
    assert hidden(settings)["a"]["size"] == 5
    assert hidden({name: 3}) == {name: 3}, "a number is no secret"
    assert secrets_in(a_run({name: SECRET})) == [f"--environment-kwargs {name}"]


@pytest.mark.parametrize(("url", "shown"), URLS.items())
def test_urls_are_shown_without_their_credentials(url: str, shown: str) -> None:
    assert hidden({"where": url}) == {"where": shown}
    assert (secrets_in(a_run({}, start_from=url)) == ["--start-from"]) == (url != shown)


@given(st.dictionaries(st.sampled_from(["api_key", "size", "host"]), st.text(PRINTABLE, min_size=1, max_size=8)))
def test_what_is_shown_is_a_run_of_the_same_names_and_shows_the_same_again(kwargs: dict[str, str]) -> None:
    shown = shown_run(a_run(kwargs))
    assert shown.environment.kwargs.keys() == kwargs.keys()
    assert shown_run(shown) == shown


def test_the_settings_of_a_custom_network_and_algorithm_count() -> None:
    method = custom_algorithm("my:Method", {"unroll_length": 4, "service_token": SECRET}, source="test")
    run = msgspec.structs.replace(
        a_run({}, **{"network.name": "my:Torso", "network.kwargs": {"password": SECRET}}), algorithm=method
    )
    assert secrets_in(run) == ["--service-token", "--network-kwargs password"]
    assert SECRET not in json.dumps(shown_run(run).to_dict())


@pytest.mark.parametrize(
    "words",
    [
        ["--environment-kwargs", json.dumps({"api_key": SECRET, "size": 3})],
        [f"--environment-kwargs={json.dumps({'api_key': SECRET})}"],
        ["--service-token", SECRET],
        [f"--service-token={SECRET}", "--envs", "3"],
        ["--start-from", f"s3://user:{SECRET}@bucket"],
        ["--api-keys", "a", SECRET],
    ],
)
def test_a_command_is_shown_without_secrets(words: list[str], tmp_path: Path) -> None:
    command = shlex.join(["rl-cluster", "--environment", "my:Env", *words])
    (tmp_path / "command").write_text(command + "\n")
    shown = command_of_run(tmp_path)
    assert SECRET not in shown
    assert HIDDEN in shown
    assert len(shlex.split(shown)) == len(shlex.split(command))


def test_the_file_has_what_a_resume_needs_and_what_shows_it_has_not(tmp_path: Path) -> None:
    run = a_run({"api_key": SECRET, "size": 3})
    (tmp_path / "run.toml").write_text(run.to_toml())
    assert SECRET in (tmp_path / "run.toml").read_text()
    assert settings_as_written(tmp_path / "run.toml")["environment"]["kwargs"] == {"api_key": HIDDEN, "size": 3}
    said = contradiction(run, {"environment.kwargs": {"api_key": "another"}})
    assert "contradicts" in said
    assert SECRET not in said
    assert "another" not in said
