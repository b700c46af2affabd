import asyncio

import pytest

from ps_web.viewers import MOST_VIEWERS, MOST_WAITING_BYTES, TooManyViewers, Viewers, Waiting, encoded


def read(page: Waiting, *, end: bool = False) -> list[bytes | None]:
    """What waits for a page, to the end of the stream if it has `end`ed."""

    async def every() -> list[bytes | None]:
        found: list[bytes | None] = []
        while page._messages or (end and found[-1:] != [None]):
            found.append(await asyncio.wait_for(page.get(), 10))
        return found

    return asyncio.run(every())


def test_each_page_gets_each_message_in_order() -> None:
    viewers = Viewers()
    pages = [viewers.open() for _ in range(2)]
    for number in range(3):
        viewers.send("n", {"number": number})
    for page in pages:
        assert read(page) == [encoded("n", {"number": number}) for number in range(3)]


def test_of_the_present_and_of_frames_a_page_is_sent_the_newest_and_of_rows_all() -> None:
    """However many there are: a slow link settles with fewer of the first kind. Each run has its own."""
    viewers = Viewers()
    page = viewers.open([1, 2])
    for number in range(1000):
        for run in (1, 2):
            viewers.send("now", {"run": run, "number": number})
            viewers.send("frame", {"run": run, "number": number, "image": "x" * 20_000})
    viewers.send("rows", {"run": 1, "number": 0})
    viewers.send("rows", {"run": 1, "number": 1})
    of_runs = [encoded("now", {"run": run, "number": 999}) for run in (1, 2)]
    sent = read(page)
    assert [one for one in sent if one and one.startswith(b"event: now")] == of_runs
    assert [one and one[:13] for one in sent].count(b"event: frame\n") == 2
    assert sent[-2:] == [encoded("rows", {"run": 1, "number": number}) for number in range(2)]
    assert len(viewers) == 1


def test_a_page_that_never_reads_is_disconnected_and_the_others_go_on() -> None:
    viewers = Viewers()
    slow, quick = viewers.open(), viewers.open()
    for number in range(MOST_WAITING_BYTES // 100_000 + 3):
        viewers.send("rows", {"number": number, "much": "x" * 100_000})
        assert len(read(quick)) == 1
    assert len(viewers) == 1
    assert read(slow, end=True) == [None], "the end of its stream"


def test_the_number_of_pages_has_an_end() -> None:
    viewers = Viewers()
    for _ in range(MOST_VIEWERS):
        viewers.open()
    with pytest.raises(TooManyViewers):
        viewers.open()


def test_a_page_gets_what_is_news_of_its_runs() -> None:
    viewers = Viewers()
    page = viewers.open([1])
    for content in ({"run": 0}, {"run": 1}, {}):
        viewers.send("n", content)
    assert read(page) == [encoded("n", {"run": 1}), encoded("n", {})]
