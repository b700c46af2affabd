"""The routes, over real HTTP on the loopback interface."""

import asyncio
import contextlib
import gc
import json
import shlex
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import aiohttp
import msgspec
import pytest
from aiohttp.test_utils import TestClient, TestServer

from ps_common.protocol.messages import Adjust, StatusReply, StatusRequest, StopRequest, Subscribe, ToServer
from ps_common.protocol.wire import PROTOCOL_TAG, Buffer, to_frames
from ps_common.run_folder.run_rows import RowsTail
from ps_common.settings.hidden import HIDDEN
from ps_common.settings.run_settings import with_settings
from ps_common.settings.run_spec import RunSpec
from ps_web import access as access_module
from ps_web import app as app_module
from ps_web.access import Access, serving
from ps_web.app import make_app, static_folder
from ps_web.index import RunIndex
from ps_web.viewers import MOST_VIEWERS, RESERVED, Viewers
from tests.ps_common.settings.test_regular_file import KINDS
from tests.ps_common.sockets.test_request import server
from tests.ps_common.sockets.test_run_request import Shards
from tests.ps_server.records.test_metrics import a_status
from tests.rows import row

TOKEN = "a-secret"
Check = Callable[[TestClient[aiohttp.web.Request, aiohttp.web.Application]], Awaitable[None]]
ROW = {"time": 1.0, "minutes": 0.1, "global_steps": 100, "mean_return_100": 12.5, "steps_per_second": 50.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "a-run"
    run.mkdir()
    (run / "metrics.jsonl").write_text(json.dumps(ROW) + "\n")
    return run


def with_page(folder: Path, check: Check, *, is_open: bool = True, viewers: Viewers | None = None) -> None:
    """Run a check against a page of one past run."""
    viewers = Viewers() if viewers is None else viewers

    async def run() -> None:
        app = make_app(
            RunIndex([folder], (), viewers), viewers, Access(TOKEN, is_open=is_open, port=1, hosts={"proxy.example"})
        )
        async with TestClient(TestServer(app)) as client:
            await check(client)

    asyncio.run(run())


def test_the_page_and_all_that_it_loads_are_served_by_itself(folder: Path) -> None:
    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        page = await (await client.get("/")).text()
        assert "http://" not in page
        assert "https://" not in page
        for name in {path.name for path in static_folder().iterdir()} - {"index.html"}:
            response = await client.get(f"/static/{name}")
            assert response.status == 200
            assert response.content_type in ("text/javascript", "application/javascript", "text/css")
            assert response.headers["Cache-Control"] == "no-store"
            assert name in page
        assert (await client.get("/static/../cli.py")).status == 404

    with_page(folder, check)


async def streamed_run(client: TestClient, headers: Mapping[str, str] = {}) -> dict[str, Any]:  # type: ignore[type-arg]
    """The run that a page gets when it is opened."""
    async with client.get("/api/stream", headers=headers) as response:
        seen = b""
        while b"event: run" not in seen or not seen.endswith(b"\n\n"):
            seen += await asyncio.wait_for(response.content.readany(), 10)
    run: dict[str, Any] = json.loads(seen.split(b"event: run\ndata: ")[1].split(b"\n\n")[0])
    return run


def test_a_page_that_is_opened_gets_the_whole_past(folder: Path) -> None:
    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        run = await streamed_run(client)
        assert run["name"] == "a-run"
        assert run["points"]["mean_return_100"] == [12.5]
        assert run["status"] is None

    with_page(folder, check)


def test_no_secret_of_a_run_is_on_its_page(folder: Path) -> None:
    secret = "sk-not-a-real-one"
    kwargs = {"environment.kwargs": {"api_key": secret, "host": f"https://user:{secret}@sim.example"}}
    run = with_settings(RunSpec(), {"environment.id": "my:Env"} | kwargs, source="test")
    (folder / "run.toml").write_text(run.to_toml())
    words = shlex.join(["rl-cluster", "--environment-kwargs", json.dumps(run.environment.kwargs), "--token", secret])
    (folder / "command").write_text(words)

    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        shown = await streamed_run(client)
        assert shown["settings"]["environment"]["kwargs"]["api_key"] == HIDDEN
        listed = await (await client.get("/api/runs")).text()
        for text in (json.dumps(shown), listed):
            assert "my:Env" in text
            assert secret not in text

    with_page(folder, check)


def test_a_stream_is_the_same_packed_or_not_and_much_shorter(folder: Path) -> None:
    """And each message is there before the next one comes."""
    (folder / "metrics.jsonl").write_text((json.dumps(ROW) + "\n") * 1000)
    viewers = Viewers()

    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        plain = {"Accept-Encoding": "identity"}
        assert await streamed_run(client) == await streamed_run(client, plain)
        sizes = []
        for headers in ({}, plain):
            async with client.get("/api/stream", headers=headers, auto_decompress=False) as response:
                assert (response.headers.get("Content-Encoding") == "gzip") is not bool(headers)
                viewers.close()
                sizes.append(len(await asyncio.wait_for(response.content.read(), 10)))
        assert sizes[0] < sizes[1] / 4

    with_page(folder, check, viewers=viewers)


def test_a_long_first_look_at_a_folder_holds_up_nothing_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()
    read = RowsTail.read

    def slow_read(rows: RowsTail[Any]) -> Any:
        begun.set()
        assert may_end.wait(20), "the page serves others meanwhile"
        return read(rows)

    monkeypatch.setattr(RowsTail, "read", slow_read)

    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        opened = asyncio.create_task(streamed_run(client))
        await until(begun.is_set)
        assert (await asyncio.wait_for(client.get("/healthz"), 10)).status == 200
        may_end.set()
        assert (await opened)["points"]["mean_return_100"] == [12.5]

    with_page(folder, check)


@pytest.mark.parametrize("path", ["/", "/api/stream", "/metrics", "/static/app.js"])
def test_on_another_interface_looking_takes_the_token(folder: Path, path: str) -> None:
    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        assert (await client.get(path)).status == 401
        async with client.get(path, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            assert response.status == 200
        assert (await client.get(path, headers={"Authorization": "Bearer another"})).status == 401

    with_page(folder, check, is_open=False)


def test_the_printed_address_leaves_a_cookie_and_no_token_in_the_address_bar(folder: Path) -> None:
    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        response = await client.get(f"/?token={TOKEN}", allow_redirects=False)
        assert (response.status, response.headers["Location"]) == (302, "./")
        cookie = response.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await client.get("/")).status == 200  # with the cookie
        value = cookie.partition("=")[2].partition(";")[0]
        assert TOKEN not in value
        client.session.cookie_jar.clear()
        assert (await client.get("/", headers={"Authorization": f"Bearer {value}"})).status == 401, "it is no token"
        good_until, _, signature = value.partition(".")
        for other in (f"{int(good_until) + 1}.{signature}", f"{good_until}.", value[:-1], "x", "ä.ö", TOKEN, ""):
            assert (await client.get("/", headers={"Cookie": f"ps_web_1={other}"})).status == 401, other
        assert (await client.get("/", headers={"Cookie": f"ps_web_1={value}"})).status == 200
        with mock.patch("time.time", return_value=int(good_until)):
            assert (await client.get("/", headers={"Cookie": f"ps_web_1={value}"})).status == 401, "it is too old"

    with_page(folder, check, is_open=False)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Content-Type": "text/plain"}, 415),
        ({"Authorization": f"Bearer {TOKEN}"}, 502),  # let in: there is no server
    ],
)
def test_steering_takes_the_token_and_no_other_site_can_do_it(
    folder: Path, headers: dict[str, str], status: int
) -> None:
    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        for what in ("checkpoint", "adjust", "stop"):
            sent = {"Content-Type": "application/json"} | headers
            response = await client.post(f"/api/runs/0/{what}", data=b'{"paused": true}', headers=sent)
            assert response.status == status, await response.text()

    with_page(folder, check)


def test_a_run_in_shards_is_adjusted_and_ended_at_shard_1_whichever_the_page_shows(folder: Path) -> None:
    async def steer(shards: Shards) -> None:
        viewers = Viewers()
        app = make_app(
            RunIndex((), [shards.addresses["second"]], viewers),
            viewers,
            Access(TOKEN, is_open=True, port=1, hosts=set()),
        )
        sent = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        async with TestClient(TestServer(app)) as client:
            for what in ("adjust", "stop", "checkpoint"):
                response = await client.post(f"/api/runs/0/{what}", data=b'{"paused": true}', headers=sent)
                assert response.status == 200, await response.text()

    with ExitStack() as stack:
        asyncio.run(steer(shards := Shards(stack)))
    asked = [(name, type(message)) for name, message in shards.asked if not isinstance(message, Subscribe)]
    assert asked[:2] == [("first", Adjust), ("first", StopRequest)]
    assert sorted(name for name, _ in asked[2:]) == ["first", "second"]


def test_every_response_forbids_what_other_sites_could_use(folder: Path) -> None:
    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        other_site = {"Host": "evil.example"}
        for path, headers, status in [
            ("/", {}, 200),
            ("/api/stream", {}, 200),
            ("/healthz", {}, 200),
            ("/nothing", {}, 404),
            ("/", other_site, 403),
            ("/api/stream?runs=" + ",".join(map(str, range(100))), {}, 400),
        ]:
            async with client.get(path, headers=headers) as response:
                assert response.status == status
                policy = response.headers["Content-Security-Policy"]
                assert "default-src 'none'" in policy
                assert "unsafe" not in policy

    with_page(folder, check)


def test_a_server_with_an_impossible_status_hides_no_other_run() -> None:
    def hostile(message: ToServer) -> list[list[Buffer]]:
        reply = StatusReply(request=message.request, status=a_status(), run={}, schema=())
        told = msgspec.to_builtins(reply)
        told["status"] |= {"staleness_counts": [1, 2], "staleness_mean": float("nan")}
        return [[PROTOCOL_TAG, msgspec.msgpack.encode(told)]]

    def honest(message: ToServer) -> list[list[Buffer]]:
        return [to_frames(StatusReply(request=message.request, status=a_status(), run={}, schema=()))]

    async def check(addresses: list[str]) -> None:
        viewers = Viewers()
        access = Access(TOKEN, is_open=True, port=1, hosts=set())
        app = make_app(RunIndex((), addresses, viewers), viewers, access)
        async with TestClient(TestServer(app)) as client:
            response = await client.get("/metrics")
            assert response.status == 200
            text = await response.text()
        for address, up in zip(addresses, (0.0, 1.0), strict=True):
            assert f'ps_rl_up{{environment="",preset="",run="{address}"}} {up}' in text

    with server(hostile) as first, server(honest) as second:
        asyncio.run(check([first, second]))


def test_scrapes_of_a_silent_server_share_one_request() -> None:
    """Each would hold a thread for seconds, and the owner's requests would wait for one."""
    asked: list[ToServer] = []

    def silent(message: ToServer) -> list[list[Buffer]]:
        asked.append(message)
        return []

    async def check(address: str) -> None:
        viewers = Viewers()
        app = make_app(RunIndex((), [address], viewers), viewers, Access(TOKEN, is_open=True, port=1, hosts=set()))
        async with TestClient(TestServer(app)) as client:
            headers = {"X-Prometheus-Scrape-Timeout-Seconds": "1"}
            for response in await asyncio.gather(*(client.get("/metrics", headers=headers) for _ in range(40))):
                assert (response.status, "ps_rl_up{" in await response.text()) == (200, True)

    with server(silent) as address:
        asyncio.run(check(address))
    assert sum(isinstance(one, StatusRequest) for one in asked) == 1


def test_pages_that_never_read_are_disconnected_and_another_is_served(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_module, "STUCK_SECONDS", 0.5)
    viewers = Viewers()
    forgotten = [socket.socket() for _ in range(MOST_VIEWERS - RESERVED)]

    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        loop = asyncio.get_running_loop()
        before = len(asyncio.all_tasks())
        for page in forgotten:
            page.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            page.setblocking(False)
            await loop.sock_connect(page, (client.host, client.port))
            await loop.sock_sendall(page, b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await until(lambda: len(viewers) == MOST_VIEWERS - RESERVED)
        assert (await client.get("/api/stream")).status == 503
        while len(viewers):
            viewers.send("now", {"run": 0, "much": "x" * 100_000})
            await asyncio.sleep(0.001)
        await until(lambda: len(asyncio.all_tasks()) <= before + 1)  # that of the client
        async with client.get("/api/stream") as response:
            assert b"event: hello" in await asyncio.wait_for(response.content.readany(), 10)
        viewers.close()

    try:
        with_page(folder, check, viewers=viewers)
    finally:
        for page in forgotten:
            page.close()


def test_what_cannot_be_decoded_is_no_token_and_no_fault_of_the_page(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        for line, status in [
            (b"GET /api/runs HTTP/1.1\r\nCookie: ps_web_1=\xff\xfe", 200),
            (b"GET /api/runs HTTP/1.1\r\nAuthorization: Bearer \xff\xfe", 200),
            (b"GET /?token=%ff%fe HTTP/1.1", 200),
            (b"POST /api/runs/0/stop HTTP/1.1\r\nCookie: ps_web_1=\xff", 415),
            (b"POST /api/runs/0/stop HTTP/1.1\r\nOrigin: http://[", 403),
            (b"POST /api/runs/" + b"9" * 5000 + b"/stop HTTP/1.1\r\nAuthorization: Bearer a-secret"
             b"\r\nContent-Type: application/json", 404),
            (b"GET /api/runs HTTP/1.1\r\nIf-None-Match: \xff", 200),
            (b"no HTTP at all", 400),
            (b"GET / HTTP/9.9", 400),
        ]:  # fmt: skip
            with row(line[:60]):
                assert await _status_of(client, line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n") == status
        assert await _status_of(client, b"GET / HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n") in (400, 403)

    with_page(folder, check)
    assert [record for record in caplog.records if record.exc_info] == []


async def _status_of(client: TestClient, request: bytes) -> int:  # type: ignore[type-arg]
    reader, writer = await asyncio.open_connection(client.host, client.port)
    writer.write(request)
    head = await asyncio.wait_for(reader.read(100), 10)
    writer.close()
    return int(head.split()[1])


def test_places_are_reserved_for_pages_with_the_token(folder: Path) -> None:
    viewers = Viewers()
    for _ in range(MOST_VIEWERS - RESERVED):
        viewers.open(is_owner=False)

    async def check(client: TestClient) -> None:  # type: ignore[type-arg]
        assert (await client.get("/api/stream")).status == 503
        async with client.get("/api/stream", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            assert response.status == 200
        viewers.close()

    with_page(folder, check, viewers=viewers)


def test_half_requests_take_no_connection_from_others_and_end_by_themselves(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page of the owner, with its stream, stays; so does that of a visitor, while there are half requests."""
    monkeypatch.setattr(access_module, "REQUEST_SECONDS", 1.0)
    most, viewers = 10, Viewers()
    access = Access(TOKEN, is_open=True, port=1, hosts=set())
    index = RunIndex([folder], (), viewers)
    sockets = [socket.socket() for _ in range(5 * most)]

    async def check() -> None:
        loop = asyncio.get_running_loop()
        listening = socket.create_server(("127.0.0.1", 0))
        page = f"http://127.0.0.1:{listening.getsockname()[1]}"
        app = make_app(index, viewers, access)
        async with serving(app, listening, access, most=most), aiohttp.ClientSession() as client:
            owner = await client.get(page + "/api/stream", headers={"Authorization": f"Bearer {TOKEN}"})
            for half in sockets:
                half.setblocking(False)
                await loop.sock_connect(half, listening.getsockname())
                await loop.sock_sendall(half, b"GET / HTTP/1.1\r\nHost:")
                async with client.get(page + "/healthz") as response:
                    assert response.status == 200
            assert await asyncio.wait_for(owner.content.readany(), 10)
            for half in sockets:
                with contextlib.suppress(ConnectionResetError):
                    assert await asyncio.wait_for(loop.sock_recv(half, 1), 20) == b""
            viewers.close()

    try:
        asyncio.run(check())
    finally:
        for half in sockets:
            half.close()


LINES = {  # contents of files that no program of ours writes
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "nested in a row": b'{"meters": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "digits": b'{"time": ' + b"9" * 5_000 + b', "global_steps": ' + b"9" * 5_000 + b"}",
    "toml of digits": b"seed = " + b"9" * 5_000,
    "toml nested": b"seed = " + b"[" * 10_000 + b"]" * 10_000,
    "bytes": bytes(range(256)) * 100,
}
FILES = (
    "metrics.jsonl",
    "episodes.jsonl",
    "events.jsonl",
    "logged.jsonl",
    "command",
    "checkpoints",
    "endpoint",
    "run.toml",
)


def test_a_run_folder_of_any_content_costs_other_runs_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """A run of each hostile kind of file beside a sound one: the list, the curves and the metrics of that one come."""
    gc.collect()  # what earlier tests have left has finalizers, which must not run where a nested file fills the stack
    kinds: dict[str, Callable[[Path], object]] = {make.__name__: make for make in KINDS}
    kinds |= {kind: partial(Path.write_bytes, data=line + b"\n" + line) for kind, line in LINES.items()}
    folders = [folder]
    for number, (kind, make) in enumerate(kinds.items()):
        for files in (FILES, FILES[1 + number % 7 :]):  # one that is read first may hide what others do
            folders.append(tmp_path / f"{kind} {len(folders)}")
            folders[-1].mkdir()
            for name in FILES:
                (make if name in files else Path.touch)(folders[-1] / name)
            if not (folders[-1] / "run.toml").exists():
                (folders[-1] / "run.toml").unlink()
                (folders[-1] / "run.toml").touch()

    async def check() -> None:
        viewers = Viewers()
        app = make_app(RunIndex(folders, (), viewers), viewers, Access(TOKEN, is_open=True, port=1, hosts=set()))
        async with TestClient(TestServer(app)) as client:
            for path in ("/api/runs", "/metrics", "/readyz"):
                response = await asyncio.wait_for(client.get(path), 60)
                assert response.status == 200, path
                assert path == "/readyz" or "a-run" in await response.text()
            async with client.get("/api/stream") as response:
                assert response.status == 200
                seen = b""
                while b"a-run" not in seen or not seen.endswith(b"\n\n"):
                    seen += await asyncio.wait_for(response.content.readany(), 60)
            viewers.close()

    asyncio.run(check())
    assert [record for record in caplog.records if record.exc_info] == []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)
