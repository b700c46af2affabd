import pytest

from ps_web.viewers import MOST_VIEWERS, MOST_WAITING, TooManyViewers, Viewers, encoded


def test_numbers_that_json_lacks_become_null() -> None:
    assert encoded("now", {"loss": float("nan")}) == b'event: now\ndata: {"loss":null}\n\n'


def test_each_page_gets_each_message_in_order() -> None:
    viewers = Viewers()
    pages = [viewers.open() for _ in range(2)]
    for number in range(3):
        viewers.send("n", {"number": number})
    for page in pages:
        assert [page.get_nowait() for _ in range(3)] == [encoded("n", {"number": number}) for number in range(3)]


def test_a_page_that_never_reads_is_disconnected_and_the_others_go_on() -> None:
    viewers = Viewers()
    slow, quick = viewers.open(), viewers.open()
    for number in range(MOST_WAITING + 2):
        viewers.send("n", {"number": number})
        assert quick.get_nowait() == encoded("n", {"number": number})
    assert len(viewers) == 1
    left = [slow.get_nowait() for _ in range(slow.qsize())]
    assert len(left) <= MOST_WAITING
    assert left[-1] is None, "the end of its stream"


def test_the_number_of_pages_has_an_end() -> None:
    viewers = Viewers()
    for _ in range(MOST_VIEWERS):
        viewers.open()
    with pytest.raises(TooManyViewers):
        viewers.open()


def test_it_is_known_which_runs_any_page_shows() -> None:
    viewers = Viewers()
    assert not viewers.shown(1).is_set()
    pages = [viewers.open(runs) for runs in ([0, 1], [1])]
    viewers.leave(pages[0])
    assert [viewers.shown(run).is_set() for run in (0, 1)] == [False, True]
    viewers.leave(pages[1])
    assert not viewers.shown(1).is_set()


def test_a_page_gets_what_is_news_of_its_runs() -> None:
    viewers = Viewers()
    page = viewers.open([1])
    for content in ({"run": 0}, {"run": 1}, {}):
        viewers.send("n", content)
    assert [page.get_nowait() for _ in range(page.qsize())] == [encoded("n", {"run": 1}), encoded("n", {})]


def test_closing_ends_every_stream() -> None:
    viewers = Viewers()
    pages = [viewers.open() for _ in range(2)]
    for _ in range(MOST_WAITING):
        viewers.send("n", {})
    viewers.close()
    for page in pages:
        assert [page.get_nowait() for _ in range(page.qsize())][-1] is None
