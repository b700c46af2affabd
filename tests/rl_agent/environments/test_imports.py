"""Which modules are imported for a run that a peer or a file specifies: those that the own command line names."""

import sys

import pytest

from ps_common.errors import SettingsError
from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import Environment
from rl_agent.environments.imports import import_modules
from tests.rows import row


def asked_for(environment: str, *named: str, is_trusted: bool = False) -> None:
    import_modules(named, Environment(id=environment), source="the server at x:1", is_trusted=is_trusted)


@pytest.mark.parametrize("named", [(), ("json",), ("xml",), ("xml.sax",), ("this_one",), ("xml.sa",)], ids=str)
def test_a_module_that_nobody_named_here_is_refused_and_not_imported(
    named: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if named == ("this_one",):
        monkeypatch.setitem(sys.modules, "this_one", sys)
    if named == ("xml.sa",):
        monkeypatch.setitem(sys.modules, "xml.sa", sys)
    monkeypatch.delitem(sys.modules, "xml.sax.handler", raising=False)
    with pytest.raises(
        SettingsError, match=r"^the server at x:1 trains xml.sax.handler:X-v0, .*add --import xml.sax.handler$"
    ):
        asked_for("xml.sax.handler:X-v0", *named)
    assert "xml.sax.handler" not in sys.modules


def test_what_the_command_line_names_is_imported_when_nothing_else_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "xml.sax.handler", raising=False)
    with pytest.raises(SettingsError, match=r"add --import json$"):
        asked_for("json:X-v0", "xml.sax.handler")
    assert "xml.sax.handler" not in sys.modules
    asked_for("xml.sax.handler:X-v0", "json", "xml.sax.handler")
    assert "xml.sax.handler" in sys.modules


@pytest.mark.parametrize("environment", ["ALE/Pong-v5", "VizdoomBasic-v1", "MinAtar/Breakout-v1", "a:b:X-v0"])
def test_a_module_before_any_familys_id_is_a_module(environment: str) -> None:
    with pytest.raises(SettingsError, match="add --import json"):
        asked_for(f"json:{environment}", "a", "a:b")


def test_no_part_of_any_kind_is_imported_unless_its_module_was_named() -> None:
    for settings in [
        {"environment": {"id": "json:make"}},
        {"environment": {"id": "json:ALE/Pong-v5"}},
        {"environment": {"wrapper": ["xml:W", "json:W"]}},
        {"network": {"name": "json:Torso"}},
        {"algorithm": {"name": "json:Method", "unroll_length": 5}},
    ]:
        with row(settings):
            run = run_from_dict(settings, source="a test")
            with pytest.raises(
                SettingsError, match=r"^the run of x trains json:.* known by its key; .* add --import json$"
            ):
                import_modules(["xml"], run, source="the run of x")
            import_modules(["xml", "json"], run, source="the run of x")
            import_modules([], run, source="the run of x", is_trusted=True)


def test_a_server_that_is_known_by_its_key_is_believed() -> None:
    asked_for("json:X-v0", is_trusted=True)
