"""Which modules are imported for a run that others have specified: those that the own command line names."""

import sys

import pytest

from common.errors import SettingsError
from common.run_spec import Environment
from rl_worker.imports import import_modules


def asked_for(environment: str, *named: str, is_trusted: bool = False) -> None:
    import_modules(named, Environment(id=environment), source="the server at x:1", is_trusted=is_trusted)


@pytest.mark.parametrize("named", [(), ("json",), ("xml.dom",), ("this_one",), ("xml.sa",)], ids=str)
def test_a_module_that_nobody_named_here_is_refused_and_not_imported(
    named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if named == ("this_one",):
        monkeypatch.setitem(sys.modules, "this_one", sys)
    if named == ("xml.sa",):
        monkeypatch.setitem(sys.modules, "xml.sa", sys)
    monkeypatch.delitem(sys.modules, "xml.sax.handler", raising=False)
    with pytest.raises(
        SettingsError, match=r"the server at x:1 trains xml.sax.handler:X-v0, .*add --import xml.sax.handler$"
    ):
        asked_for("xml.sax.handler:X-v0", *named)
    assert "xml.sax.handler" not in sys.modules


@pytest.mark.parametrize("named", ["json", "json.decoder"])
def test_what_the_command_line_names_is_imported_with_what_is_in_it(named: str) -> None:
    asked_for("json.decoder:X-v0", named)


def test_an_environment_of_an_installed_family_needs_no_module() -> None:
    for environment in ("CartPole-v1", "ALE/Pong-v5", "VizdoomBasic-v1"):
        asked_for(environment)


def test_a_server_that_is_known_by_its_key_is_believed() -> None:
    asked_for("json:X-v0", is_trusted=True)
