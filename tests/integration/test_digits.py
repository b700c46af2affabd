"""Something else than a game: two processes of one script learn digits through a plain ps-server."""

import re

from tests.integration.processes import Programs

GOOD = 94.0  # per cent of 297 images; 96 to 98 is usual


def test_two_workers_learn_digits_through_a_plain_server(programs: Programs) -> None:
    server, endpoint = programs.start_server("--max-steps", "60000")
    workers = [programs.start("examples.digits.worker", endpoint) for _ in range(2)]
    for worker in workers:
        assert worker.wait() == 0, worker.output
        (found,) = re.findall(r"([\d.]+)% of the test images are right", worker.output)
        assert float(found) >= GOOD, worker.output
    assert server.wait() == 0, server.output
    assert 'id = "none"' in (programs.folder / "run" / "run.toml").read_text()
