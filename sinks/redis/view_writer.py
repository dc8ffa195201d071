"""Writes the live view to Redis behind the truth, and rebuilds it if it is behind or emptied.

`view` computes the keys, and `refill` the order of a refill. The guard's `seq` is the `seq` of the
last merge that Redis shows completely. If a merge is the next one, it is written directly.
Otherwise Redis is brought up to date from the truth, and an unusable guard is written again. A
refill runs in steps between merges. Each step reads after the last commit and writes before the
next one, so it never overwrites newer data.
"""

import json
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from sinks.cell_reader import CellReader, Ranking
from sinks.cells.merge import Cell, CellId, Cells, WindowId
from sinks.config import RedisSettings
from sinks.errors import SinkUnavailable
from sinks.redis.link import (
    GUARD_KEY,
    META_KEY,
    MergeFacts,
    connect,
    encode_write,
    guarded_call,
    meta_fields,
    published,
)
from sinks.redis.refill import RefillPart, parts_of
from sinks.redis.script import WRITE
from sinks.redis.scrubber import Scrubber
from sinks.redis.view import (
    AHEAD_S_MAX,
    NO_RANKINGS,
    PREFIX,
    Write,
    calls,
    is_shown,
    matured,
    oldest_kept_s,
    writes,
)
from sinks.rows import ALL_WINDOW_S, MetricDefinition
from sinks.truth import WriterGuard
from sinks.values import Measure

KEPT_KEYS = frozenset({GUARD_KEY, META_KEY})
DELETED_PER_CALL = 500
# Above this many changed cells, a complete refill is cheaper than catching up.
CAUGHT_UP_CELLS_MAX = 20_000

CellsInOrder = Iterable[tuple[CellId, Cell]]


class RedisView:
    """The live view in Redis, as one driver writes it. Only one thread at a time may use it.

    Pass the guard that the driver's own MySQL transaction has set. Never read the guard later for a
    write: it can already belong to the driver's successor.
    """

    def __init__(
        self,
        settings: RedisSettings,
        definitions: Sequence[MetricDefinition],
        cell_reader: CellReader,
    ) -> None:
        self._client = connect(settings)
        self._script = self._client.register_script(WRITE)
        self._definitions = {definition.name: definition for definition in definitions}
        self._cell_reader = cell_reader
        self._scrubber = Scrubber(self._client, self._definitions, cell_reader)
        self._parts: deque[RefillPart] | None = None
        self._ahead: set[WindowId] | None = None

    @property
    def is_refilling(self) -> bool:
        """True if older windows are still missing."""
        return self._parts is not None

    @property
    def scrubbed_total(self) -> int:
        """The number of windows that differed from the truth and were repaired."""
        return self._scrubber.mended_total

    def follow(
        self, guard: WriterGuard, cells: Cells, fallen: Iterable[WindowId], progress: MergeFacts
    ) -> None:
        """Show the last merge; catch up first if Redis missed an earlier one.

        Raises FencedWriter, LedgerMismatch, SinkUnavailable.
        """
        now_s = progress.now_ms // 1000
        ordered = [(cell_id, cells[cell_id]) for cell_id in sorted(cells)]
        rankings = self._rankings(fallen, now_s)
        if not self._write(guard, ordered, rankings, now_s, guard.seq - 1, progress):
            self.catch_up(guard, progress)

    def catch_up(self, guard: WriterGuard, progress: MergeFacts) -> None:
        """Bring Redis up to the truth's `seq`, in whatever state Redis is.

        If Redis has that `seq` already, do nothing.

        If `is_refilling` is true afterwards, call `refill` until it is false. Raises as `follow`.
        """
        shown = guarded_call(lambda: self._client.hgetall(GUARD_KEY))
        rebuilding = guarded_call(lambda: self._client.hget(META_KEY, "rebuilding"))
        now_s = progress.now_ms // 1000
        seq, epoch = int(shown.get("seq", -1)), int(shown.get("epoch", -1))
        is_ours = (epoch, shown.get("query")) == (guard.epoch, guard.query_id)
        lost = bool(rebuilding) != self.is_refilling
        if seq < 0 or seq > guard.seq or epoch > guard.epoch or lost:
            self._begin_refill(guard, progress)
        elif seq < guard.seq:
            cells = self._cell_reader.cells_after(seq, CAUGHT_UP_CELLS_MAX)
            if cells is None:
                self._begin_refill(guard, progress)
                return
            windows = {cell_id.window for cell_id, _ in cells if self._may_fall(cell_id.metric)}
            rankings = self._rankings(windows, now_s)
            self._write(guard, cells, rankings, now_s, seq, progress)
        elif not is_ours or self._matured(now_s):
            self._write(guard, (), NO_RANKINGS, now_s, seq, progress)

    def refill(self, guard: WriterGuard, now_s: int, budget_s: float) -> None:
        """Write missing windows, newest first, for about `budget_s`; raises as `follow` does."""
        deadline = time.monotonic() + budget_s
        while self._parts is not None:
            if not self._parts:
                guarded_call(lambda: self._client.hdel(META_KEY, "rebuilding"))
                self._parts = None
                return
            part = self._parts[0]
            cells = self._cell_reader.cells_between(*part)
            for packed in calls(writes(cells, self._definitions, now_s)):
                if not self._send(guard, packed, guard.seq, None):
                    # Redis was emptied again, or has another driver; the next `catch_up` decides.
                    self._parts = None
                    return
            self._parts.popleft()
            if time.monotonic() >= deadline:
                return

    def scrub(self, guard: WriterGuard, now_s: int) -> None:
        """Compare a part of the view with the truth and repair it; raises as `follow` does."""
        if self.is_refilling:
            self._scrubber.reset()
        else:
            self._scrubber.scrub(guard, now_s)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _begin_refill(self, guard: WriterGuard, progress: MergeFacts) -> None:
        """Delete the mill's keys and plan the refill from the truth.

        `rebuilding` is set in `mill:meta` until the refill is done. If another driver finds it,
        that driver starts the refill again. An epoch in Redis above ours, while the truth is still
        ours, means that the truth was restored from a copy; so we may overwrite the guard.
        """
        self._cell_reader.check_ours()
        self._parts = None
        now_s = progress.now_ms // 1000
        fresh: dict[Any, Any] = {
            "epoch": guard.epoch,
            "query": guard.query_id,
            "batch": guard.batch_id,
            "seq": guard.seq,
        }
        meta = meta_fields(guard, progress)
        pipeline = self._client.pipeline(transaction=True)
        pipeline.unlink(GUARD_KEY, META_KEY)
        pipeline.hset(META_KEY, items=[*meta, "rebuilding", "1"])
        pipeline.hset(GUARD_KEY, mapping=fresh)
        guarded_call(pipeline.execute)
        self._delete_keys()
        parts: list[RefillPart] = []
        for definition in self._definitions.values():
            for size_s in definition.windows_s:
                oldest_s = oldest_kept_s(definition, size_s, now_s)
                windows = self._cell_reader.windows_from(definition.name, size_s, oldest_s)
                parts += parts_of(definition.name, size_s, windows)
        self._parts = deque(sorted(parts, key=lambda part: part.rank))

    def _delete_keys(self) -> None:
        doomed: list[str] = []
        found = self._client.scan_iter(match=f"{PREFIX}*", count=DELETED_PER_CALL)
        while True:
            key = guarded_call(lambda: next(found, None))
            if key is not None and key not in KEPT_KEYS:
                doomed.append(key)
            if doomed and (key is None or len(doomed) >= DELETED_PER_CALL):
                some, doomed = doomed, []
                guarded_call(partial(self._client.unlink, *some))
            if key is None:
                return

    def _may_fall(self, metric: str) -> bool:
        definition = self._definitions[metric]
        return definition.top is not None and definition.measure != Measure.COUNT

    def _rankings(self, windows: Iterable[WindowId], now_s: int) -> dict[WindowId, Ranking]:
        return {
            window: self._cell_reader.ranking(window, self._definitions[window.metric].top or 0)
            for window in windows
            if is_shown(window, self._definitions, now_s)
        }

    def _matured(self, now_s: int) -> set[WindowId]:
        """Return windows that were too far ahead to be the latest when written, but now are not."""
        if self._ahead is None:
            self._ahead = {
                WindowId(definition.name, size_s, start_s)
                for definition in self._definitions.values()
                for size_s in definition.windows_s
                if size_s != ALL_WINDOW_S
                for start_s, _ in self._cell_reader.windows_from(
                    definition.name, size_s, now_s + AHEAD_S_MAX + 1
                )
            }
        return {window for window in self._ahead if window.start_s <= now_s + AHEAD_S_MAX}

    def _write(
        self,
        guard: WriterGuard,
        cells: CellsInOrder,
        rankings: Mapping[WindowId, Ranking],
        now_s: int,
        expect: int,
        progress: MergeFacts,
    ) -> bool:
        """Send calls of about 1,000 fields; the last call moves the guard.

        Return False if Redis lacks an earlier merge.
        """
        listed = list(cells)
        come = self._matured(now_s)
        waiting: list[Write] | None = None
        told = writes(listed, self._definitions, now_s, rankings)
        for packed in calls(chain(told, matured(come, self._definitions, now_s))):
            if waiting is not None and not self._send(guard, waiting, expect, None):
                return False
            waiting = packed
        if not self._send(guard, waiting or [], expect, progress):
            return False
        ahead = {i.window for i, _ in listed if i.start_s > now_s + AHEAD_S_MAX}
        self._ahead = ((self._ahead or set()) - come) | ahead
        return True

    def _send(
        self, guard: WriterGuard, some: list[Write], expect: int, progress: MergeFacts | None
    ) -> bool:
        body = {
            # Send numbers as text, because Lua would write a large number with an exponent.
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
        answer = guarded_call(lambda: self._script(args=[json.dumps(body)]))
        if answer == "fenced":
            self._cell_reader.check_ours()
            raise SinkUnavailable("redis", "its guard has an epoch that MySQL does not know")
        return bool(answer == "ok")
