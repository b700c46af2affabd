"""`ps-web`: the page of runs that are live or over, and the metrics that Prometheus scrapes."""

import asyncio
import dataclasses
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import parse_qs, quote, urlsplit

import tyro

from ps_common.errors import SettingsError
from ps_common.program.flags import parse_program
from ps_common.program.number_flags import Port, check_numbers
from ps_common.program.output import line_of_page
from ps_common.program.stop_signals import ignore_stop_signals, stop_signals
from ps_common.protocol.names import bare_host, check_address, is_loopback, join_address
from ps_common.run_folder.paths import write_whole
from ps_common.settings.regular_file import content_of
from ps_common.sockets.curve import CurveFlags
from ps_web.access import Access, serving
from ps_web.app import make_app
from ps_web.history import most_sent
from ps_web.index import MOST_SHOWN, RunIndex
from ps_web.viewers import Viewers

PROGRAM = "ps-web"
LEAST_TOKEN, MOST_TOKEN_BYTES = 16, 4096


@dataclass(frozen=True, kw_only=True)
class WebSettings(CurveFlags):
    """
    Shows runs in a browser: curves, workers, events; with the token also checkpoints and adjustments.

      ps-web runs/cartpole-1            a run of this machine, live or over
      ps-web runs/                      all runs below a folder, side by side
      ps-web --server host:5555         a run of another machine

    The flags that matter first:
      --server HOST:PORT       a server of another machine; several for several runs
      --port N                 port of the page; 0 takes a free one
      --host ADDRESS           interface to listen on; on any but the loopback interface looking takes the token, too
      --token-file PATH        a file with the secret that steering takes; a random one when not given
      --allow-host NAME        a name under which a proxy offers the page
      --curve-server-key PATH  the public key of a locked server, with --curve-secret PATH
    """

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional] = ()
    """run folders, or folders of them"""
    server: tuple[str, ...] = ()
    """HOST:PORT of a ps-server; several: of several runs"""
    host: str = "127.0.0.1"
    """interface to listen on; on any but the loopback interface looking takes the token, too"""
    port: Port = 8265
    """0 takes a free one"""
    wait: bool = False
    """the run folders that are named may hold no run yet: the page shows each as soon as it does"""
    address_file: Path | None = None
    """a file that has the page's address, with its token, while the page is served; it is not printed then"""
    token_file: Path | None = None
    """a file with the secret that steering takes, of 16 characters or more; a random one, which a terminal shows, when
    not given"""
    allow_host: tuple[str, ...] = ()
    """names under which a proxy offers this page"""

    def __post_init__(self) -> None:
        check_numbers(self)
        for server in self.server:
            check_address("--server", server)
        if not self.runs and not self.server:
            raise SettingsError("ps-web shows runs: name a RUN_DIR, or a server with --server HOST:PORT")
        if len(self.server) > MOST_SHOWN:
            raise SettingsError(f"--server: {len(self.server)} runs are more than one page shows ({MOST_SHOWN})")

    def given_token(self) -> str:
        """The token in its file; "" without one. Raises SettingsError."""
        if self.token_file is None:
            return ""
        try:
            token = content_of(self.token_file, most_bytes=MOST_TOKEN_BYTES).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "is not a text"
            raise SettingsError(f"--token-file {self.token_file}: cannot be read: {why}") from error
        if len(token) < LEAST_TOKEN:
            raise SettingsError(
                f"--token-file {self.token_file}: a token that nobody can guess has {LEAST_TOKEN} characters or more"
            )
        return token

    @property
    def token_is(self) -> str:
        """Where the token is, in words."""
        if self.token_file is not None:
            return f"in {self.token_file}"
        return "shown by a terminal, or kept by --address-file FILE"


def show(argv: Sequence[str] | None = None) -> int:
    """Run the program until a signal ends it. Raises PsRlError for what the user can mend."""
    settings = parse_program(WebSettings, argv, prog=PROGRAM)
    viewers = Viewers()
    index = RunIndex(settings.runs, settings.server, viewers, keys=settings.client_keys(), wait=settings.wait)
    settings, token = _at_the_address_before(settings)
    asyncio.run(_serve(settings, index, viewers, token))
    ignore_stop_signals()
    return 0


def _at_the_address_before(settings: WebSettings) -> tuple[WebSettings, str]:
    """
    The settings and the token. A page that is started in the place of a killed one, whose address is still in its file,
    takes its port and its token: who has it open sees it go on.
    """
    given, file = settings.given_token(), settings.address_file
    token = given or secrets.token_urlsafe(16)
    if file is None or given or not file.exists():
        return settings, token
    try:
        before = urlsplit(file.read_text(encoding="utf-8"))
        port, tokens = before.port, parse_qs(before.query).get("token")
    except (OSError, ValueError):  # it is another file
        return settings, token
    if not port or not tokens or settings.port not in (0, port):
        return settings, token
    return dataclasses.replace(settings, port=port), tokens[0]


async def _serve(settings: WebSettings, index: RunIndex, viewers: Viewers, token: str) -> None:
    """Until a signal comes. Raises SettingsError when the port cannot be listened on."""
    is_open, stop = is_loopback(settings.host), asyncio.Event()
    for number in stop_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with _listening_socket(settings.host, settings.port) as listening:
        port = listening.getsockname()[1]
        access = Access(token, is_open=is_open, port=port, hosts=set(settings.allow_host))
        address = f"http://{join_address(settings.host, port)}/?token={quote(token, safe='')}"
        async with serving(make_app(index, viewers, access), listening, access):
            if settings.address_file is None:
                print(line_of_page(address, token_is=settings.token_is), flush=True)
            else:
                _write_address(settings.address_file, address)
            try:
                await stop.wait()
            finally:
                shown = [run for run in index.runs if viewers.shown(run.number).is_set()]
                viewers.send("bye", {"runs": [await run.last_word(most_sent(len(shown))) for run in shown]})
                viewers.close()
                if settings.address_file is not None:
                    settings.address_file.unlink(missing_ok=True)


def _write_address(file: Path, address: str) -> None:
    """The file has the token, and only its owner may read it. Raises SettingsError."""
    try:
        write_whole(file, address, mode=0o600)
    except OSError as error:
        raise SettingsError(f"--address-file {file}: cannot be written: {error.strerror}") from error


def _listening_socket(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(bare_host(host), port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except OSError as error:
        raise SettingsError(f"--host {host} --port {port}: cannot be listened on: {error.strerror or error}") from error
