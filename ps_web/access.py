"""
Access to the page: a token, the host names that a browser may use, and the headers that keep other sites out.

On the loopback interface everybody on this machine may look. On another interface looking takes the token. Steering
takes it everywhere.
"""

import hmac
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import web

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


class Access:
    """`token` is a secret text; `is_open`: looking takes no token. `hosts` are names that proxies use for this page."""

    def __init__(self, token: str, *, is_open: bool, port: int, hosts: set[str]) -> None:
        self._token = token
        self._is_open = is_open
        self._hosts = LOOPBACK | hosts
        self._cookie = f"ps_web_{port}"

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse what may not come in, and give every response its headers."""
        if self._is_open and _name_of(request.host) not in self._hosts:
            # A page of another site whose name leads to this machine (DNS rebinding).
            raise web.HTTPForbidden(text=f"ps-web does not answer to the name {request.host}; see --allow-host\n")
        given = request.query.get("token", "")
        if given and request.method == "GET" and request.path == "/" and self._is_token(given):
            response: web.StreamResponse = web.Response(status=302, headers={"Location": "./"})
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict")
        else:
            self._check(request)
            response = await handler(request)
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def may_steer(self, request: web.Request) -> bool:
        """Whether the page that asks has the token."""
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        return self._is_token(request.cookies.get(self._cookie, "")) or (
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
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _check_origin(self, request: web.Request) -> None:
        """Forms and scripts of other sites are refused, with whatever cookies they come."""
        origin = request.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc != request.host:
            raise web.HTTPForbidden(text="requests of other sites are refused\n")
        if request.content_type != "application/json":
            raise web.HTTPUnsupportedMediaType(text="the body must be JSON\n")


def _name_of(host: str) -> str:
    return urlsplit(f"//{host}").hostname or ""
