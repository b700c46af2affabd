import asyncio

import pytest

from ps_web.viewers import MOST_VIEWERS, MOST_WAITING, TooManyViewers, Viewers, encoded


def test_numbers_that_json_lacks_become_null() -> None:
    assert encoded("now", {"loss": float("nan")}) == b'event: now\ndata: {"loss":null}\n\n'


def test_each_page_gets_each_message_in_order() -> None:
    async def check() -> None:
        viewers = Viewers()
        pages = [viewers.stream() for _ in range(2)]
        first = [asyncio.ensure_future(anext(page)) for page in pages]
        await asyncio.sleep(0)
        for number in range(3):
            viewers.send("n", {"number": number})
        for page, future in zip(pages, first, strict=True):
            assert await future == encoded("n", {"number": 0})
            assert await anext(page) == encoded("n", {"number": 1})
            await page.aclose()

    asyncio.run(check())


def test_a_page_that_never_reads_is_disconnected_and_the_others_go_on() -> None:
    async def check() -> None:
        viewers = Viewers()
        slow, quick = viewers.stream(), viewers.stream()
        futures = [asyncio.ensure_future(anext(page)) for page in (slow, quick)]
        await asyncio.sleep(0)
        viewers.send("n", {"number": 0})
        await asyncio.gather(*futures)
        for number in range(1, MOST_WAITING + 2):
            viewers.send("n", {"number": number})
            assert await anext(quick) == encoded("n", {"number": number})
        assert len(viewers) == 1
        left = [message async for message in slow]
        assert len(left) < MOST_WAITING
        await quick.aclose()

    asyncio.run(check())


def test_the_number_of_pages_has_an_end() -> None:
    async def check() -> None:
        viewers = Viewers()
        pages = [viewers.stream() for _ in range(MOST_VIEWERS)]
        futures = [asyncio.ensure_future(anext(page)) for page in pages]
        await asyncio.sleep(0)
        with pytest.raises(TooManyViewers):
            await anext(viewers.stream())
        for future in futures:
            future.cancel()
        await asyncio.gather(*futures, return_exceptions=True)

    asyncio.run(check())


def test_it_is_known_whether_any_page_is_open() -> None:
    async def check() -> None:
        viewers = Viewers()
        assert not viewers.arrived.is_set()
        page = viewers.stream()
        future = asyncio.ensure_future(anext(page))
        await asyncio.sleep(0)
        assert viewers.arrived.is_set()
        viewers.send("n", {})
        await future
        await page.aclose()
        assert not viewers.arrived.is_set()

    asyncio.run(check())
