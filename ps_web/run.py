"""
One run as the page sees it: its folder, if there is one here, and its server, if one answers.

The folder brings the past: curves, episodes, events. The server brings the present. Without a folder the past begins
when this program does. A promoted standby writes to a folder of its own: where this one no longer
grows, the curves continue with the server's statuses.
"""

import asyncio
import base64
import hashlib
import shlex
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from ps_common.program.flags import typed_flags
from ps_common.program.objects import MAIN
from ps_common.protocol.messages import Event, WatchedFrame
from ps_common.protocol.names import is_import_path, is_loopback, module_of, printable, split_address
from ps_common.protocol.status import Status
from ps_common.run_folder.checkpoint_folder import checkpoints_of
from ps_common.run_folder.commands import command_of_run, what_next, whose_code
from ps_common.run_folder.endpoint_file import read_endpoint
from ps_common.run_folder.paths import (
    BEST,
    CHECKPOINTS,
    ENDPOINT,
    EPISODES,
    EVALUATIONS,
    EVENTS,
    LOGGED,
    METRICS,
    SHARD_NAME,
)
from ps_common.run_folder.run_rows import EvaluationRow, EventRow, LoggedRow, MetricsRow, RowsTail, last_row
from ps_common.settings.run_files import SETTINGS, settings_as_written
from ps_common.sockets.curve import ClientKeys
from ps_web.history import MOST_SENT, EpisodePoint, MetricsPoint, StalenessHistogram, Table, ending_of, newest_events
from ps_web.link import ServerLink
from ps_web.viewers import Viewers

EVERY_SECONDS = 1.0  # between two looks at a folder
STILL_SECONDS = 6.0  # a server adds a row to its folder every two
MOST_READ = 12_000  # rows of a long file: a table has room for fewer


class WatchedRun:
    """
    A run folder, a server's address, or both. `name` is what the page calls it.

    `number` is for this process; `id` is the same in each, so that a link to the page holds.
    """

    def __init__(
        self,
        number: int,
        name: str,
        viewers: Viewers,
        *,
        folder: Path | None,
        servers: Sequence[str],
        keys: ClientKeys | None,
    ) -> None:
        self.number = number
        self.name = printable(name)
        self.folder = folder
        self.keys = keys
        self.watched = ""  # the worker whose game the page shows
        self.status: Status | None = None  # the newest while the server answers
        self._last_status: Status | None = None  # the newest of all
        self._servers = list(servers)
        self._viewers = viewers
        self._grown = -STILL_SECONDS  # when the folder had new rows
        self._run_id = ""  # the last one that a server has said
        self._reading = asyncio.Lock()
        self._begin()
        self.link = ServerLink(
            self.addresses,
            keys=keys,
            take_status=self._take_status,
            take_event=self._take_event,
            watched=lambda: self.watched if viewers.shown(number).is_set() else "",
            take_frame=self._take_frame,
        )
        if folder is not None:
            self._metrics_file = RowsTail(folder / METRICS, MetricsPoint, most_rows=MOST_READ)
            self._episodes_file = RowsTail(folder / EPISODES, EpisodePoint, most_rows=MOST_READ)
            self._evaluations_file = RowsTail(folder / EVALUATIONS, EvaluationRow, most_rows=MOST_READ)
            self._logged_file = RowsTail(folder / LOGGED, LoggedRow, most_rows=MOST_READ)
            self._events_file = RowsTail(folder / EVENTS, EventRow)

    def _begin(self) -> None:
        """Nothing is known of the run."""
        self._points, self._episodes, self._logged = Table("global_steps"), Table("episode"), Table("global_steps")
        self._evaluations, self._staleness = Table("global_steps"), StalenessHistogram()
        self._events: list[EventRow] = []
        self._newest_event = (0, 0)  # epoch and number
        self._saved = 0  # checkpoints
        self._times = (0.0, 0.0)  # of the first and the newest row, in seconds since 1970
        self._standby = ""

    @cached_property
    def id(self) -> str:
        """Eight digits of the place of the run."""
        place = str(self.folder.resolve()) if self.folder else self.name
        return hashlib.blake2s(place.encode(errors="surrogateescape"), digest_size=4).hexdigest()

    # -- what a page is sent --------------------------------------------------------------------------------------

    def whole(self, most: int = MOST_SENT) -> dict[str, Any]:
        """Everything, for a page that has just been opened; at most `most` rows of each table."""
        return {
            "run": self.number,
            "id": self.id,
            "name": self.name,
            **self._past(),
            "points": self._points.columns(most),
            "episodes": self._episodes.columns(most),
            "evaluations": self._evaluations.columns(most),
            "logged": self._logged.columns(most),
            "events": self._events,
            "saved": self._saved,
            **self._now(),
        }

    async def last_word(self, most: int) -> dict[str, Any]:
        """Everything, for a page that gets no more: how the run ended, or what was seen of it last."""
        await self.read_folder()
        self.status, self.link.address = None, ""
        return self.whole(most)

    def _past(self) -> dict[str, Any]:
        """What the folder tells of the run; `ended` is "" while it goes on, and where nobody has seen its end."""
        written = last_row(self.folder / METRICS, MetricsRow) if self.folder else None
        end = next((last for last in (written, self._last_status) if last and last.ending and not self.status), None)
        settings = settings_as_written(self.folder / SETTINGS) if self.folder else {}
        past = {"settings": settings, "command": "", "next": [], **ending_of(end)}
        if self.folder is not None:
            whole = self.folder.parent if SHARD_NAME.fullmatch(self.folder.name) else self.folder
            past["command"] = command_of_run(self.folder)
            modules = self._modules()
            lines = what_next(written, whole, modules=modules) if written and MAIN not in modules else []
            past["next"] = list(map(printable, [*(whose_code(modules) if lines else []), *lines]))
        return past

    def _now(self) -> dict[str, Any]:
        """The present; where no server answers, also what the folder says of the run and its end."""
        past = {"next": self._for_more_workers(), **ending_of(None)} if self.status else self._past()
        checkpoints = [path.name for path in checkpoints_of(self.folder)[:5]] if self.folder else []
        return {
            "run": self.number,
            "address": self.link.address,
            "asking": self.link.is_asking and bool(self.addresses()),
            "status": self.status,
            "checkpoints": checkpoints,
            "best": bool(self.folder and (self.folder / CHECKPOINTS / BEST).exists()),
            "seconds": self._times[1] - self._times[0],
            "staleness": self._staleness.counts(),
            "watched": self.watched,
            **past,
        }

    def _for_more_workers(self) -> list[str]:
        imports = ["--import", *modules] if (modules := self._modules()) else []
        command = shlex.join(["rl-cluster", "--server", self.link.address, *imports])
        if not self.link.address or MAIN in modules:
            return []
        is_here = is_loopback(split_address(self.link.address)[0])
        where = "this machine; for those of others start the run with --host 0.0.0.0" if is_here else "any machine"
        return [*whose_code(modules), f"# more workers, on {where}:", command]

    def _modules(self) -> list[str]:
        """Those that the command of the run names, by --import and by import paths."""
        try:
            typed = typed_flags(shlex.split(command_of_run(self.folder) if self.folder else ""))
        except ValueError:  # the file is anybody's text
            return []
        paths = [word for words in typed.values() for word in words if is_import_path(word)]
        return list(dict.fromkeys([*typed.get("--import", ()), *map(module_of, paths)]))

    def watch_worker(self, worker_id: str) -> None:
        """Show the game of this worker on all pages; "": of none."""
        self.watched = worker_id
        self._viewers.send("now", self._now())

    # -- tasks ----------------------------------------------------------------------------------------------------

    async def watch(self) -> None:
        """
        Follow the run until cancelled.

        With a folder nothing is read and no server is asked while no page shows the run: the files keep the past.
        """
        shown = self._viewers.shown(self.number)
        while True:
            if self.folder is not None:
                await shown.wait()
            link = asyncio.create_task(self.link.run())
            was_silent = False
            try:
                while self.folder is None or shown.is_set():
                    if link.done():
                        await link  # raises its error
                    await self.read_folder()
                    is_silent = not self.link.address and not self.link.is_asking
                    if is_silent and not was_silent:
                        self.status = None
                        self._viewers.send("now", self._now())
                    was_silent = is_silent
                    await asyncio.sleep(EVERY_SECONDS)
            finally:
                link.cancel()
                self.status = None
                self._staleness.pause()
                await asyncio.wait([link])  # a cancellation of this task that comes meanwhile is not lost
                if not link.cancelled():
                    link.result()  # raises its error

    async def read_folder(self) -> None:
        """Take what was appended to the run's files, which a thread reads, and send it on."""
        if self.folder is None:
            return
        async with self._reading:
            read = asyncio.to_thread  # files of a first look may be long
            points, anew = await read(self._metrics_file.read)
            games, scores = await read(self._episodes_file.read), await read(self._evaluations_file.read)
            logged, events = await read(self._logged_file.read), await read(self._events_file.read)
            self._take(self._points, [point.drawn() for point in points], anew, "points")
            if points:
                self._grown = time.monotonic()
                self._times = (self._times[0] or points[0].time, points[-1].time)
                if self.status is None:
                    self._staleness.add(points[-1].staleness_counts)
            self._take(self._episodes, [msgspec.structs.asdict(game) for game in games[0]], games[1], "episodes")
            self._take(self._evaluations, [row.drawn() for row in scores[0]], scores[1], "evaluations")
            self._take(self._logged, [row.drawn() for row in logged[0]], logged[1], "logged")
            self._add_events(events[0])

    def _take(self, table: Table, rows: list[dict[str, Any]], anew: bool, kind: str) -> None:
        if anew:
            table.clear()
        rows = [table.add(row) for row in rows]
        if (table.went_back() or anew) and rows:
            self._viewers.send("table", {"run": self.number, "table": kind, "columns": table.columns()})
        elif rows:
            self._viewers.send("rows", {"run": self.number, "table": kind, "rows": rows})

    def _add_events(self, events: Sequence[EventRow]) -> None:
        """Those that have not come before: an event comes from the folder and from the server."""
        new = [event for event in events if (event.epoch, event.number) > self._newest_event]
        if new:
            self._newest_event = (new[-1].epoch, new[-1].number)
            self._events = newest_events([*self._events, *new])
            self._saved += sum(event.kind == "checkpoint" for event in new)
            self._viewers.send("events", {"run": self.number, "events": self._events, "saved": self._saved})

    def _take_event(self, epoch: int, event: Event) -> None:
        """The server has sent an event."""
        self._add_events([EventRow.of(event, epoch=epoch, time=time.time())])

    def _take_status(self, status: Status) -> None:
        """The server has sent its status."""
        is_another = self._run_id and status.run_id not in ("", self._run_id)
        self._run_id = status.run_id or self._run_id
        self.status = self._last_status = status
        if is_another and self.folder is None:  # at the address of one that is over
            self._begin()
            self.link.subscribe_anew()
            self._viewers.send("run", self.whole())
        self._staleness.add(status.staleness_counts)
        if status.standby is not None:
            self._standby = status.standby.address
        if time.monotonic() - self._grown > STILL_SECONDS:
            self._take(self._points, [MetricsPoint.of(status, time=time.time()).drawn()], False, "points")
        self._viewers.send("now", self._now())

    def _take_frame(self, watched: WatchedFrame) -> None:
        """The server has sent a frame of a game. One of a worker that was watched before is dropped."""
        if watched.worker_id != self.watched:
            return
        frame = watched.frame
        fields = {name: getattr(frame, name) for name in ("score", "value", "actions", "probabilities", "taken")}
        image = base64.b64encode(frame.image).decode()
        self._viewers.send("frame", {"run": self.number, "worker": watched.worker_id, "image": image, **fields})

    # -- the folder -----------------------------------------------------------------------------------------------

    def addresses(self) -> list[str]:
        """Where the server may be: the folder's newest address first."""
        places = list(self._servers)
        if self.folder is not None and (address := read_endpoint(self.folder / ENDPOINT)):
            places.insert(0, address)
        if self._standby:
            places.append(self._standby)
        return places
