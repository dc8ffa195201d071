"""The live view in Redis: written behind the truth, brought up to it when it is behind or wiped.

Driver of `view`; beside `redis_truth` the only file that writes to Redis. The guard's `seq` says
up to which merge Redis shows everything: the next merge is written straight, anything else is
caught up from the truth, and a guard that cannot be trusted is rebuilt from nothing.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.typing import EncodableT, FieldT

from sinks.config import RedisSettings
from sinks.errors import Fenced, SinkError, SinkUnavailable
from sinks.merge import Cell, CellId, Cells
from sinks.redis_script import WRITE
from sinks.rows import ALL_WINDOW_S, Batch, MetricDefinition
from sinks.schema import size_text
from sinks.truth import Guard
from sinks.view import PREFIX, Write, calls, oldest_kept_s, writes

TIMEOUT_S = 5.0
GUARD_KEY = "mill:guard"
META_KEY = "mill:meta"
KEPT_KEYS = frozenset({GUARD_KEY, META_KEY})
DELETED_PER_CALL = 500
UNGUARDED = -1


class Cellar(Protocol):
    """Where the view is filled from: the truth's cells by metric and size."""

    def cells_after(
        self, seq: int, metric: str, size_s: int, oldest_s: int
    ) -> Iterator[tuple[CellId, Cell]]:
        """Cells written by merges after `seq`, of windows from `oldest_s` on."""
        ...

    def check_ours(self) -> None:
        """Raise Fenced unless the truth's writer row is still this driver's."""
        ...


@dataclass(frozen=True, slots=True)
class Progress:
    """What `mill:meta` and the channel say of a merge."""

    lines: int
    lag: int | None
    now_ms: int
    changed: Sequence[tuple[str, int, int]]


def connect(settings: RedisSettings) -> "redis.Redis":
    """A client that reports a fault at once; trying again is the caller's business."""
    return redis.Redis(
        host=settings.host,
        port=settings.port,
        username=settings.username,
        password=settings.password,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
    )


def progress_of(batch: Batch, cells: Cells) -> Progress:
    """What to tell of a merged batch."""
    changed = sorted({(c.metric, c.size_s, c.start_s) for c in cells})
    return Progress(batch.lines, batch.lag, batch.now_ms, changed)


class RedisView:
    """One driver's hold on the live view; not for use by several threads."""

    def __init__(self, settings: RedisSettings, definitions: Sequence[MetricDefinition]) -> None:
        self._client = connect(settings)
        self._script = self._client.register_script(WRITE)
        self._definitions = {definition.name: definition for definition in definitions}

    def follow(self, guard: Guard, cells: Cells, progress: Progress, cellar: Cellar) -> None:
        """Show a merge that was just made; catches up first if Redis missed an earlier one.

        Raises Fenced, SinkUnavailable.
        """
        ordered = ((cell_id, cells[cell_id]) for cell_id in sorted(cells))
        now_s = progress.now_ms // 1000
        if not self._write(guard, ordered, now_s, expect=guard.seq - 1, progress=progress):
            self.catch_up(guard, progress, cellar)

    def catch_up(self, guard: Guard, progress: Progress, cellar: Cellar) -> None:
        """Bring Redis to the truth's `seq`, whatever it holds; nothing is done when it is there.

        Raises Fenced, SinkUnavailable.
        """
        shown = self._call(lambda: self._client.hgetall(GUARD_KEY))
        rebuilding = self._call(lambda: self._client.hexists(META_KEY, "rebuilding"))
        seq = int(shown.get("seq", -1))
        epoch = int(shown.get("epoch", -1))
        now_s = progress.now_ms // 1000
        if epoch > guard.epoch:
            cellar.check_ours()
        if seq < 0 or seq > guard.seq or epoch > guard.epoch or rebuilding:
            self._rebuild(guard, now_s, progress, cellar)
        elif seq < guard.seq or epoch < guard.epoch or shown.get("query") != guard.query_id:
            cells = () if seq == guard.seq else self._cells(cellar, seq, now_s)
            if not self._write(guard, cells, now_s, expect=seq, progress=progress):
                raise SinkError("another writer moved Redis's guard; the batch is tried again")

    def close(self) -> None:
        """Leave the server."""
        self._client.close()

    def _rebuild(self, guard: Guard, now_s: int, progress: Progress, cellar: Cellar) -> None:
        """Empty the mill's keys and fill them from the truth, totals and newest windows first.

        `rebuilding` stands in `mill:meta` meanwhile; found at a start, it means "from the
        beginning". An epoch above ours while the truth is still ours means that the truth was
        restored from a copy: the guard is ours to set.
        """
        fresh: dict[FieldT, EncodableT] = {
            "epoch": guard.epoch,
            "query": guard.query_id,
            "batch": guard.batch_id,
            "seq": 0,
        }
        self._call(lambda: self._client.hset(META_KEY, "rebuilding", "1"))
        self._call(lambda: self._client.hset(GUARD_KEY, mapping=fresh))
        self._delete_keys()
        cells = self._cells(cellar, 0, now_s)
        self._write(guard, cells, now_s, expect=UNGUARDED, progress=progress)
        self._call(lambda: self._client.hdel(META_KEY, "rebuilding"))

    def _cells(self, cellar: Cellar, seq: int, now_s: int) -> Iterator[tuple[CellId, Cell]]:
        pairs = [
            (size_s != ALL_WINDOW_S, definition.name, size_s)
            for definition in self._definitions.values()
            for size_s in definition.windows_s
        ]
        for _, name, size_s in sorted(pairs):
            oldest_s = oldest_kept_s(self._definitions[name], size_s, now_s)
            yield from cellar.cells_after(seq, name, size_s, oldest_s)

    def _delete_keys(self) -> None:
        doomed: list[str] = []

        def collect() -> list[str]:
            found = self._client.scan_iter(match=f"{PREFIX}*", count=DELETED_PER_CALL)
            return [key for key in found if key not in KEPT_KEYS]

        doomed = self._call(collect)
        for begin in range(0, len(doomed), DELETED_PER_CALL):
            some = doomed[begin : begin + DELETED_PER_CALL]
            self._call(lambda some=some: self._client.unlink(*some))

    def _write(
        self,
        guard: Guard,
        cells: Iterable[tuple[CellId, Cell]],
        now_s: int,
        *,
        expect: int,
        progress: Progress,
    ) -> bool:
        """Send calls of about 1,000 fields; the guard moves with the last. False when behind."""
        waiting: list[Write] | None = None
        for packed in calls(writes(cells, self._definitions, now_s)):
            if waiting is not None and not self._send(guard, waiting, expect, None):
                return False
            waiting = packed
        return self._send(guard, waiting or [], expect, progress)

    def _send(
        self, guard: Guard, some: list[Write], expect: int, progress: Progress | None
    ) -> bool:
        body = {
            # Texts, for Lua would write a large number with an exponent.
            "epoch": str(guard.epoch),
            "query": guard.query_id,
            "batch": str(guard.batch_id),
            "seq": str(guard.seq),
            "expect": expect,
            "last": progress is not None,
            "writes": [encode_write(write) for write in some],
            "meta": [] if progress is None else meta_fields(guard, progress),
            "published": "" if progress is None else published(guard, progress),
        }
        answer = self._call(lambda: self._script(args=[json.dumps(body)]))
        if answer == "fenced":
            raise Fenced("a driver of a newer epoch writes to Redis")
        return bool(answer == "ok")

    def _call(self, ask: Any) -> Any:
        return guarded_call(ask)


def guarded_call(ask: Any) -> Any:
    """Run one exchange; a server that is away becomes SinkUnavailable."""
    try:
        return ask()
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
        raise SinkUnavailable("redis", str(error)) from error
    except redis.exceptions.ResponseError as error:
        # A server that still loads its file, or has no room, may answer the next time.
        if str(error).startswith(("LOADING", "OOM", "READONLY", "MASTERDOWN", "BUSY", "MISCONF")):
            raise SinkUnavailable("redis", str(error)) from error
        raise


def meta_fields(guard: Guard, progress: Progress) -> list[str]:
    """`mill:meta` after a merge, as field and value in turn."""
    at = datetime.fromtimestamp(progress.now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    told: Mapping[str, object] = {
        "updated_at": at,
        "batch": guard.batch_id,
        "lines": progress.lines,
        "lag": "unknown" if progress.lag is None else progress.lag,
    }
    return [str(part) for pair in told.items() for part in pair]


def published(guard: Guard, progress: Progress) -> str:
    """The message on `mill:updates`."""
    changed = [
        {"metric": metric, "size": size_text(size_s), "start_s": start_s}
        for metric, size_s, start_s in progress.changed
    ]
    return json.dumps({"batch": guard.batch_id, "seq": guard.seq, "changed": changed})


def encode_write(write: Write) -> dict[str, object]:
    """A write as the script takes it."""
    return {
        "key": write.key,
        "start": write.start,
        "expire": write.expire_at_s,
        "latest": write.latest or "",
        "top": write.top or 0,
        "trim": write.trim and write.top is not None,
        "fields": [part for pair in write.fields.items() for part in pair],
        "ranking": [part for name, score in write.ranking.items() for part in (score, name)],
    }
