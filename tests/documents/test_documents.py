"""Every block and command of the pages for people is one that works: none is left out."""

import tomllib
from pathlib import Path

import pytest
import yaml

from ps_common.settings.run_settings import run_from_dict
from ps_common.settings.run_spec import RunSpec
from tests.documents.commands import KINDS, Block, all_blocks, blocks_of, commands_in, lines_of, mentions_in, pages
from tests.documents.promises import promise_of
from tests.documents.rules import OURS, check, check_mention, is_known
from tests.rows import row

RUN_FOLDERS = ("RUN_DIR", "runs/PRESET-DATE", "runs/first", "runs/NAME")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a user who has some runs."""
    for name in RUN_FOLDERS:
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.toml").write_text(RunSpec().to_toml())
        (tmp_path / name / "metrics.jsonl").touch()
        (tmp_path / name / "endpoint").write_text("127.0.0.1:5555\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_block_of_a_page_has_a_kind_that_is_checked() -> None:
    for page in pages():
        with row(page):
            assert [f"{block}: ```{block.kind}" for block in blocks_of(page) if block.kind not in KINDS] == []


@pytest.mark.parametrize("block", all_blocks("sh"), ids=str)
def test_every_command_of_a_block_is_taken_by_its_program(block: Block, folder: Path) -> None:
    commands = [command for line in lines_of(block) for command in commands_in(line)]
    assert commands
    for command in commands:
        try:
            check(command)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block}: {' '.join(command)}: {error}") from error


def test_a_test_sees_what_each_command_of_a_block_promises() -> None:
    commands = [command for block in all_blocks("sh") for line in lines_of(block) for command in commands_in(line)]
    blind = [one for one in commands if one[0] in OURS and "--tyro-write-completion" not in one and not promise_of(one)]
    assert blind == [], "say in promises.py what its reader gets"


@pytest.mark.parametrize("block", [*all_blocks("toml", "yaml", "python"), None], ids=str)
def test_every_snippet_of_a_page_can_be_read(block: Block | None) -> None:
    if block is None:
        return  # no page may have one
    if block.kind == "python":
        compile(block.text, str(block), "exec")
    elif block.kind == "yaml":
        assert list(yaml.safe_load_all(block.text)), block
    else:
        run_from_dict(tomllib.loads(block.text), source=str(block))


def test_every_command_in_the_text_of_a_page_has_its_flags() -> None:
    for page in [page for page in pages() if page != "CHANGELOG.md"]:
        with row(page):
            for mention in mentions_in(page):
                for command in commands_in(mention.replace("'", '"')) if is_known(mention.partition(" ")[0]) else ():
                    try:
                        check_mention(command)
                    except (Exception, SystemExit) as error:
                        raise AssertionError(f"{page}: `{mention}`: {error}") from error
