"""The Redis client, its errors that mean "away", and the format of writes for the scripts."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import redis

from sinks.cells.merge import Cells, WindowId
from sinks.config import RedisSettings
from sinks.connections import redis_client
from sinks.errors import SinkUnavailable
from sinks.redis.view import Write, start_text
from sinks.rows import Batch, size_text
from sinks.truth import WriterGuard

TIMEOUT_S = 5.0
GUARD_KEY = "mill:guard"
META_KEY = "mill:meta"
WINDOWS_TOLD_MAX = 1_000
# Beginnings of errors that can disappear later: the server is loading its file, has no memory left,
# or another program's value has the name of our key. Until then the batch waits, and the status
# shows the reason.
MAY_PASS = ("LOADING", "OOM", "READONLY", "MASTERDOWN", "BUSY", "MISCONF", "WRONGTYPE")


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """The facts about a merge that go into `mill:meta` and into the message on `mill:updates`."""

    lines: int
    lag: int | None
    now_ms: int
    changed: Sequence[tuple[str, int, int]]


def progress_of(batch: Batch, cells: Cells, bulk: Iterable[WindowId] = ()) -> MergeFacts:
    """Return the facts about a merged batch. `bulk` are changed windows whose cells are not in
    `cells`.
    """
    changed = sorted({*(cell_id.window for cell_id in cells), *bulk})
    return MergeFacts(batch.lines, batch.lag, batch.now_ms, changed)


def connect(settings: RedisSettings) -> "redis.Redis":
    """Return a client that never retries, because the callers retry."""
    return redis_client(settings, TIMEOUT_S)


def guarded_call(ask: Callable[[], Any]) -> Any:
    """Run one exchange; if the server does not answer, raise SinkUnavailable."""
    try:
        return ask()
    except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
        raise SinkUnavailable("redis", str(error)) from error
    except redis.exceptions.ResponseError as error:
        if str(error).startswith(MAY_PASS):
            raise SinkUnavailable("redis", str(error)) from error
        raise


def meta_fields(guard: WriterGuard, progress: MergeFacts) -> list[str]:
    """Return the fields and values of `mill:meta` after a merge, alternating in one list."""
    at = datetime.fromtimestamp(progress.now_ms / 1000, UTC).isoformat(timespec="milliseconds")
    told: Mapping[str, object] = {
        "updated_at": at,
        "batch": guard.batch_id,
        "lines": progress.lines,
        "lag": "unknown" if progress.lag is None else progress.lag,
    }
    return [str(part) for pair in told.items() for part in pair]


def published(guard: WriterGuard, progress: MergeFacts) -> str:
    """Return the message for `mill:updates`. It names at most WINDOWS_TOLD_MAX windows."""
    told = sorted(progress.changed, key=lambda one: (one[1] != 0, -one[2]))[:WINDOWS_TOLD_MAX]
    changed = [
        {
            "metric": metric,
            "size": size_text(size_s),
            "start": None if size_s == 0 else start_text(start_s),
        }
        for metric, size_s, start_s in sorted(told)
    ]
    message: dict[str, object] = {"batch": guard.batch_id, "seq": guard.seq, "changed": changed}
    if len(told) < len(progress.changed):
        message["changed_count"] = len(progress.changed)
    return json.dumps(message)


def encode_write(write: Write) -> dict[str, object]:
    """Return a write as the JSON object that the script in Redis reads."""
    return {
        "key": write.key,
        "start": write.start,
        "expire": write.expire_at_s,
        "latest": write.latest or "",
        "top": write.top or 0,
        "replace": write.replace,
        "fields": [part for pair in write.fields.items() for part in pair],
        "ranking": [part for name, score in write.ranking.items() for part in (score, name)],
    }
