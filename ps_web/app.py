"""The routes of the page."""

import asyncio
import contextlib
import logging
import math
import re
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import xxhash
from aiohttp import web

from ps_common.errors import PsRlError, RequestRefused
from ps_common.protocol.messages import (
    Adjust,
    Adjusted,
    CheckpointRequest,
    CheckpointSaved,
    PlainSettings,
    StatusReply,
    StatusRequest,
    StopRequest,
    ToServer,
    ToWorker,
)
from ps_common.protocol.names import Name
from ps_common.protocol.status import Status
from ps_common.sockets.request import SERVED_ELSEWHERE, ask_run
from ps_web.access import Access, give_headers, is_our_fault
from ps_web.history import most_sent
from ps_web.index import MOST_SHOWN, RunIndex
from ps_web.prometheus import exposition
from ps_web.run import WatchedRun
from ps_web.viewers import TooManyViewers, Viewers, Waiting, encoded

log = logging.getLogger("ps-web")

ANSWER_SECONDS = 5.0
SHARED_SECONDS = 1.0  # for which a status serves again
MOST_ASKED = 16  # runs at a time
SAVE_SECONDS = 60.0  # until a checkpoint is on disk
STUCK_SECONDS = 30.0  # for which a page may read nothing before it is disconnected
LOOK_SECONDS = 4.0  # between two looks for runs
PIECE_BYTES = 2**16  # of a stream that are written at once
GZIP, PACKING_LEVEL = 31, 5  # zlib's code for a gzip stream
PING_SECONDS = 15.0  # proxies close connections on which nothing is sent


def static_folder() -> Path:
    return Path(str(resources.files("ps_web") / "static"))


def make_app(index: RunIndex, viewers: Viewers, access: Access) -> web.Application:
    """The page of these runs."""
    page = Page(index, viewers, access)
    app = web.Application(middlewares=[access.middleware], client_max_size=2**16)
    app.router.add_get("/", page.index)
    app.router.add_static("/static", static_folder())
    app.router.add_get("/api/runs", page.list_runs)
    app.router.add_get("/api/stream", page.stream)
    app.router.add_post("/api/runs/{number}/checkpoint", page.checkpoint)
    app.router.add_post("/api/runs/{number}/adjust", page.adjust)
    app.router.add_post("/api/runs/{number}/stop", page.stop)
    app.router.add_post("/api/runs/{number}/watch", page.watch)
    app.router.add_get("/metrics", page.metrics)
    app.router.add_get("/healthz", page.healthz)
    app.router.add_get("/readyz", page.readyz)
    app.on_response_prepare.append(give_headers)
    logging.getLogger("aiohttp.server").addFilter(is_our_fault)
    app.cleanup_ctx.append(page.follow_runs)
    return app


class Wanted(msgspec.Struct, forbid_unknown_fields=True):
    """The worker whose game is to be shown; null: none."""

    worker_id: Name | None


class Page:
    """The handlers."""

    def __init__(self, index: RunIndex, viewers: Viewers, access: Access) -> None:
        self._index = index
        self._viewers = viewers
        self._access = access
        self._looking = asyncio.Lock()
        self._looked = 0.0  # when folders were looked for
        self._lines = b"[]"
        self._tasks: list[asyncio.Task[None]] = []
        # When the status of each run was asked for last, and the reply. These requests have threads of their own, so
        # that the owner's find one, however many runs are silent.
        self._statuses: dict[int, tuple[float, asyncio.Future[Status | None]]] = {}
        self._askers = ThreadPoolExecutor(MOST_ASKED, thread_name_prefix="status")

    async def follow_runs(self, _: web.Application) -> AsyncIterator[None]:
        """Each run has a task while the program runs."""
        self._follow(self._index.runs)
        yield
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._askers.shutdown(wait=False, cancel_futures=True)

    def _follow(self, runs: Sequence[WatchedRun]) -> None:
        for run in runs:
            self._tasks.append(task := asyncio.create_task(run.watch(), name=run.name))
            task.add_done_callback(_tell_error)

    async def list_runs(self, request: web.Request) -> web.Response:
        """A line for each run. Pages share one look at the folders, which a thread of its own takes."""
        async with self._looking:
            if time.monotonic() - self._looked > LOOK_SECONDS:
                self._follow(await asyncio.to_thread(self._index.look))
                self._lines = msgspec.json.encode(await asyncio.to_thread(self._index.lines))
                self._looked = time.monotonic()
        tag = xxhash.xxh3_64_hexdigest(self._lines)
        if any(known.value == tag for known in request.if_none_match or ()):
            return web.Response(status=304, headers={"ETag": f'"{tag}"'})
        response = web.Response(body=self._lines, content_type="application/json", headers={"ETag": f'"{tag}"'})
        response.enable_compression()
        return response

    async def index(self, _: web.Request) -> web.FileResponse:
        return web.FileResponse(static_folder() / "index.html")

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events of the runs `?runs=ID,ID` (without it the newest): first everything, then news."""
        runs = self._asked(request)
        await asyncio.gather(*(run.read_folder() for run in runs))
        is_owner = self._access.may_steer(request)
        try:
            page = self._viewers.open([run.number for run in runs], is_owner=is_owner)
        except TooManyViewers:
            raise web.HTTPServiceUnavailable(text="too many pages are open\n") from None
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        try:
            # No await between the page's queue and the state: nothing is missed, and nothing comes twice.
            start = [encoded("hello", {"steering": is_owner})]
            start += [encoded("run", run.whole(most_sent(len(runs)))) for run in runs]
            packed = _packing(request, response)
            await response.prepare(request)
            await _send(response, await asyncio.to_thread(packed, b"".join(start)))
            while (data := await _next(page)) is not None:
                await _send(response, packed(data))
        except ConnectionError:
            pass  # the page was closed
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()  # what was not read is thrown away
        finally:
            self._viewers.leave(page)
        return response

    async def checkpoint(self, request: web.Request) -> web.Response:
        reply = await self._ask(self._run(request), CheckpointRequest(request=1), SAVE_SECONDS)
        assert isinstance(reply, CheckpointSaved), "a checkpoint is acknowledged when it is on disk"
        return _json({"version": reply.version, "path": reply.path})

    async def adjust(self, request: web.Request) -> web.Response:
        try:
            settings = msgspec.json.decode(await request.read(), type=PlainSettings)
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=f"the body must be an object of settings: {error}\n") from error
        reply = await self._ask(self._run(request), Adjust(request=1, settings=settings, by="ps-web"), ANSWER_SECONDS)
        assert isinstance(reply, Adjusted), "an adjustment is acknowledged with what has changed"
        return _json({"adjustments": reply.adjustments})

    async def stop(self, request: web.Request) -> web.Response:
        await self._ask(self._run(request), StopRequest(request=1), ANSWER_SECONDS)
        return _json({})

    async def watch(self, request: web.Request) -> web.Response:
        try:
            wanted = msgspec.json.decode(await request.read(), type=Wanted)
        except msgspec.DecodeError as error:
            raise web.HTTPBadRequest(text=f"the body must name a worker_id, or null: {error}\n") from error
        self._run(request).watch_worker(wanted.worker_id or "")
        return _json({})

    async def metrics(self, request: web.Request) -> web.Response:
        """Asks each server, so that a scrape needs no open page. A silent server does not outlast the scrape."""
        limit = request.headers.get("X-Prometheus-Scrape-Timeout-Seconds", "")
        is_number = re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", limit)
        seconds = min(ANSWER_SECONDS, float(limit) / 4) if is_number else ANSWER_SECONDS
        runs = await asyncio.to_thread(self._index.newest)
        found = await asyncio.gather(*(self._status_within(run, seconds) for run in runs))
        text = exposition(zip(map(self._index.label, runs), found, strict=True))
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _: web.Request) -> web.Response:
        """Whether each run can be shown: its folder is there, or its server answers."""
        for run in await asyncio.to_thread(self._index.newest):
            if (run.folder is None or not run.folder.is_dir()) and await asyncio.shield(self._status(run)) is None:
                raise web.HTTPServiceUnavailable(text=f"{run.name}: no server answers\n")
        return web.Response(text="ok\n")

    def _run(self, request: web.Request) -> WatchedRun:
        number = request.match_info["number"]
        if not re.fullmatch("[0-9]{1,9}", number) or int(number) >= len(self._index.runs):
            raise web.HTTPNotFound
        return self._index.runs[int(number)]

    def _asked(self, request: web.Request) -> list[WatchedRun]:
        """The runs of a stream, those that are known. Raises web.HTTPException."""
        if "runs" not in request.query:
            return self._index.newest()
        ids = set(request.query["runs"].split(","))
        if len(ids) > MOST_SHOWN:
            raise web.HTTPBadRequest(text=f"runs: {len(ids)} are more than one page shows ({MOST_SHOWN})\n")
        return [run for run in self._index.runs if run.id in ids]

    async def _status_within(self, run: WatchedRun, seconds: float) -> Status | None:
        """The status, or None where none comes in time; whoever else waits for it still waits."""
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._status(run)), seconds)
        return None

    def _status(self, run: WatchedRun) -> "asyncio.Future[Status | None]":
        """The status of a run whose server answers. One request is in flight, and all share its reply for a while."""
        asked, known = self._statuses.get(run.number, (-math.inf, None))
        if known is None or (known.done() and time.monotonic() - asked > SHARED_SECONDS):
            known = asyncio.ensure_future(self._ask_for_status(run))
            self._statuses[run.number] = time.monotonic(), known
        return known

    async def _ask_for_status(self, run: WatchedRun) -> Status | None:
        with contextlib.suppress(web.HTTPException):
            reply = await self._ask(run, StatusRequest(request=1), ANSWER_SECONDS, self._askers)
            if isinstance(reply, StatusReply) and reply.status.phase not in SERVED_ELSEWHERE:
                return reply.status
        return None

    async def _ask(
        self, run: WatchedRun, message: ToServer, seconds: float, threads: ThreadPoolExecutor | None = None
    ) -> ToWorker:
        """The reply of the run's server. Raises web.HTTPException with the server's sentence."""
        if not (addresses := run.addresses()):
            raise web.HTTPBadGateway(text=f"{run.name}: no server is known\n")
        asked = partial(ask_run, timeout_seconds=seconds, keys=run.keys)
        try:
            asking = asyncio.get_running_loop().run_in_executor(threads, asked, ",".join(addresses), message)
            return (await asking)[0]
        except RequestRefused as refused:
            is_there = refused.code not in SERVED_ELSEWHERE
            raise (web.HTTPConflict if is_there else web.HTTPBadGateway)(text=f"{refused}\n") from refused
        except PsRlError as error:
            raise web.HTTPBadGateway(text=f"{error}\n") from error


def _tell_error(following: "asyncio.Task[None]") -> None:
    """An error of ours ends the following of a run; the page of that run would stand still without a word."""
    if not following.cancelled() and (error := following.exception()) is not None:
        log.error("%s is not followed any more: start ps-web again", following.get_name(), exc_info=error)


def _packing(request: web.Request, response: web.StreamResponse) -> Callable[[bytes], bytes]:
    """What compresses each message of a stream, if the page takes that; a message does not wait for the next one."""
    if "gzip" not in request.headers.get("Accept-Encoding", ""):
        return lambda data: data
    response.headers["Content-Encoding"] = "gzip"
    packer = zlib.compressobj(PACKING_LEVEL, wbits=GZIP)
    return lambda data: packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)


async def _send(response: web.StreamResponse, data: bytes) -> None:
    """Raises TimeoutError where the page reads nothing for long, however much there is to send."""
    for first in range(0, len(data), PIECE_BYTES):
        await asyncio.wait_for(response.write(data[first : first + PIECE_BYTES]), STUCK_SECONDS)


async def _next(page: Waiting) -> bytes | None:
    """The next message, or a comment when there is none for long."""
    try:
        return await asyncio.wait_for(page.get(), PING_SECONDS)
    except TimeoutError:
        return b": nothing new\n\n"


def _json(content: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")
