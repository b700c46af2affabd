"""What a test reads of a program that it has started."""

from tests.integration.processes import Programs


def test_a_line_is_read_once_it_is_whole(programs: Programs) -> None:
    program = programs.start("json.tool", "--help")
    assert program.wait() == 0
    printed = program.output
    assert printed.startswith("usage: ")
    with program.log.open("a") as log:
        log.write("pushed -12")
        log.flush()
        assert program.output == printed
        log.write("3\n")
    assert program.output == printed + "pushed -123\n"
