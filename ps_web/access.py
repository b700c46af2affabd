"""
Access to the page: connections, a token, the host names that a browser may use, and the headers that keep other sites
out.

On the loopback interface everybody on this machine may look. On another interface looking takes the token. Steering
takes it everywhere. Who opens the address with the token gets a cookie, which is good for a week. It is not the token,
since a browser sends the cookies of a host to the pages of all its ports.

The number of connections is bounded. One more closes the oldest that waits for a request, else the oldest without
the token: so half a request only costs its sender.
"""

import asyncio
import hashlib
import hmac
import logging
import resource
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import SplitResult, urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ps_common.sockets.zmq_sockets import take_every_descriptor_allowed

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LOOPBACK = {"localhost", "127.0.0.1", "::1"}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_CONNECTIONS = 1000
LEFT_DESCRIPTORS = 256  # for files, servers, and connections that are accepted before others have closed
COOKIE_SECONDS = 7 * 24 * 3600
REQUEST_SECONDS = 15.0  # for the head of a request, and between two requests


class Access:
    """`token` is a secret text; `is_open`: looking takes no token. `hosts` are names that proxies use for this page."""

    def __init__(self, token: str, *, is_open: bool, port: int, hosts: set[str]) -> None:
        self._token = token
        self._is_open = is_open
        self._hosts = LOOPBACK | hosts
        self._cookie = f"ps_web_{port}"
        self._at_work: dict[asyncio.BaseProtocol, bool] = {}  # connections with a request; whether it has the token

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what may not come in."""
        self._at_work[request.protocol] = self.may_steer(request)
        try:
            return await self._handle(request, handler)
        finally:
            self._at_work.pop(request.protocol, None)

    def accept(self, server: web.Server, most: int) -> asyncio.BaseProtocol:
        """The protocol of a new connection; another one is closed for it when there are `most`."""
        there = [one for one in server.connections if one.transport is not None and not one.transport.is_closing()]
        if len(there) >= most:  # the oldest first
            expendable = min(there, key=lambda one: {None: 0, False: 1, True: 2}[self._at_work.get(one)])
            assert expendable.transport is not None, "it is not closed"
            expendable.transport.abort()
        return server()

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._is_open and _parts_of(f"//{request.host}").hostname not in self._hosts:
            # A page of another site whose name leads to this machine (DNS rebinding).
            raise web.HTTPForbidden(text=f"ps-web does not answer to the name {request.host}; see --allow-host\n")
        given = request.query.get("token", "")
        if given and request.method == "GET" and request.path == "/" and self._is_token(given):
            response: web.StreamResponse = web.Response(status=302, headers={"Location": "./"})
            good_until = str(int(time.time()) + COOKIE_SECONDS)
            cookie = f"{good_until}.{self._signature_of(good_until)}"
            response.set_cookie(self._cookie, cookie, httponly=True, samesite="Strict", max_age=COOKIE_SECONDS)
        else:
            self._check(request)
            response = await handler(request)
        return response

    def may_steer(self, request: web.Request) -> bool:
        """Whether the page that asks has the token."""
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        return self._is_cookie(request.cookies.get(self._cookie, "")) or (
            scheme.lower() == "bearer" and self._is_token(bearer)
        )

    def _check(self, request: web.Request) -> None:
        """Raises HTTPException for a request without the right to what it asks for."""
        if request.path in ("/healthz", "/readyz"):
            return
        is_reading = request.method in ("GET", "HEAD")
        if not is_reading:
            self._check_origin(request)
        if not (is_reading and self._is_open) and not self.may_steer(request):
            raise web.HTTPUnauthorized(text="this takes the token: open the address that ps-web has printed\n")

    def _is_token(self, given: str) -> bool:
        return _are_equal(given, self._token)

    def _is_cookie(self, given: str) -> bool:
        good_until, _, signature = given.partition(".")
        is_ours = _are_equal(signature, self._signature_of(good_until))
        return is_ours and time.time() < int(good_until)

    def _signature_of(self, good_until: str) -> str:
        text = f"{self._cookie} is good until {good_until}".encode(errors="backslashreplace")
        return hmac.new(self._token.encode(errors="backslashreplace"), text, hashlib.sha256).hexdigest()

    def _check_origin(self, request: web.Request) -> None:
        """Forms and scripts of other sites are refused, with whatever cookies they come."""
        origin = request.headers.get("Origin")
        if origin is not None and _parts_of(origin).netloc != request.host:
            raise web.HTTPForbidden(text="requests of other sites are refused\n")
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="the body must be JSON\n")


@asynccontextmanager
async def serving(
    app: web.Application, listening: socket.socket, access: Access, *, most: int = MOST_CONNECTIONS
) -> AsyncIterator[None]:
    """Serve the page at this socket, with at most `most` connections."""
    take_every_descriptor_allowed()
    most = min(most, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - LEFT_DESCRIPTORS))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0, keepalive_timeout=REQUEST_SECONDS)
    await runner.setup()
    assert runner.server is not None, "it is set up"
    accept = partial(access.accept, runner.server, most)
    server = await asyncio.get_running_loop().create_server(accept, sock=listening)
    try:
        yield
    finally:
        server.close()
        await runner.cleanup()


def is_our_fault(record: logging.LogRecord) -> bool:
    """Bytes that are no HTTP are answered, and no line in the log."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


async def give_headers(_: web.Request, response: web.StreamResponse) -> None:
    """For every response, those to errors too."""
    response.headers.update(HEADERS)


def _are_equal(given: str, other: str) -> bool:
    """Takes as long whatever is given."""
    return hmac.compare_digest(*(text.encode(errors="backslashreplace") for text in (given, other)))


def _parts_of(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:  # it is none
        return urlsplit("")
