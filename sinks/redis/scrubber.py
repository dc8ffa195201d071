"""Runs the scrub of the live view: repairs what Redis has lost, or shows differently than MySQL.

`scrub` decides what to check. The scrub works between merges and on their connections, so it never
reads older data from the truth than Redis shows. Each of its writes checks the guard. A round first
asks for the sizes of the totals, the latest windows of some metrics, and some older windows. Then
it compares windows field by field until its limit of time or cells is reached.

For the default metrics with a day of minutes and a month of hours (11,000 windows), a missing key
is found within a second if it shows totals or a latest window, and otherwise within a minute. A
wrong number in totals or a latest window takes about a minute to find. One in any other field
(three million fields for 2,000 paths) takes two to three hours, at 30 ms of a core per second.
"""

import json
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis.client import NEVER_DECODE

from sinks.cell_reader import CellReader, Ranking
from sinks.cells.merge import Cell, CellId, WindowId
from sinks.errors import SinkUnavailable
from sinks.keys import key_id, redis_field
from sinks.number_text import plain
from sinks.redis.link import guarded_call
from sinks.redis.scrub import (
    SETTLED_MAX,
    HashFacts,
    WindowCheck,
    WindowCycle,
    expires_rightly,
    is_scrubbed,
    looks_whole,
    oldest_scrubbed_s,
    ranking_suffix,
    shows_latest,
)
from sinks.redis.scrub_script import COMPARE, LOOK, MEND, RANKED
from sinks.redis.view import AHEAD_S_MAX, FIELDS_PER_CALL, Write, matured, writes
from sinks.rows import MetricDefinition
from sinks.truth import WriterGuard

# The time limit of a round if no wrong window is known, and if one is known. Rounds run once a
# second.
LOOKING_S = 0.02
MENDING_S = 0.1
# The most cells that a round reads from the truth if no wrong window is known, and if one is known.
CELLS_PER_TEND = 1_000
CELLS_PER_TEND_MENDING = 10_000
CELLS_PER_PAGE = 250
# A window counts as at least this many cells, because each window costs round trips.
CELLS_PER_WINDOW_MIN = 10
# The most windows whose sizes a round reads: newest windows, and other windows.
NEWEST_PER_TEND = 16
WINDOWS_PER_TEND = 250
PAGES_PER_TEND = 4
WINDOWS_PER_PAGE = 100
# One in this number of checked windows is a latest window or has totals, because users watch these
# windows most.
NEWEST_EVERY = 4
LOGGED_PER_TEND = 10

logger = logging.getLogger(__name__)


class Scrubber:
    """The scrub of one driver. Only one thread at a time may use it."""

    def __init__(
        self,
        client: "redis.Redis",
        definitions: Mapping[str, MetricDefinition],
        cell_reader: CellReader,
    ) -> None:
        self._client = client
        self._look = client.register_script(LOOK)
        self._compare = client.register_script(COMPARE)
        self._ranked = client.register_script(RANKED)
        self._mend = client.register_script(MEND)
        self._definitions = definitions
        self._cell_reader = cell_reader
        self._newest_looked, self._newest_checked, self._looked, self._checked = (
            WindowCycle(definitions.values()) for _ in range(4)
        )
        self._suspects: dict[WindowId, bool] = {}
        self._settled: dict[WindowId, HashFacts] = {}
        self._older: deque[WindowId] = deque()
        self._check: WindowCheck | None = None
        self._checks = 0
        self._logged = 0
        self.mended_total = 0

    @property
    def rounds_total(self) -> int:
        """The number of times that every field of every shown window was compared."""
        return self._checked.rounds_total

    def reset(self) -> None:
        """Forget unfinished work, because the view is being refilled completely."""
        self._suspects.clear()
        self._settled.clear()
        self._older.clear()
        self._check = None

    def scrub(self, guard: WriterGuard, now_s: int) -> None:
        """Look at some windows, check some of them, and repair what is wrong.

        The guard in Redis must have `guard.seq`. Raises FencedWriter, LedgerMismatch,
        SinkUnavailable.
        """
        if not self._definitions:
            return
        self._logged = 0
        self._look_at_newest(now_s)
        self._look_at_others(now_s)
        cells = CELLS_PER_TEND_MENDING if self._suspects else CELLS_PER_TEND
        deadline = time.monotonic() + (MENDING_S if self._suspects else LOOKING_S)
        rounds = self.rounds_total
        while cells > 0:
            self._check = self._check or self._next_check(now_s)
            if self._check is None:
                return
            if not is_scrubbed(self._check.window, self._definition(self._check.window), now_s):
                self._check = None
                continue
            spent = self._go_on(self._check, guard, now_s)
            if spent is None:
                # Redis was emptied, or has another driver; the next look at the guard decides.
                self.reset()
                return
            cells -= spent
            if time.monotonic() >= deadline or (self.rounds_total > rounds and not self._suspects):
                return

    def _definition(self, window: WindowId) -> MetricDefinition:
        return self._definitions[window.metric]

    def _newest(self, metric: str, size_s: int, now_s: int) -> tuple[WindowId, int] | None:
        """Return the window that the latest key must show, and its key count."""
        oldest_s = oldest_scrubbed_s(self._definitions[metric], size_s, now_s)
        before_s = now_s + AHEAD_S_MAX + 1
        for start_s, n_keys in self._cell_reader.windows_before(
            metric, size_s, oldest_s, before_s, 1
        ):
            return WindowId(metric, size_s, start_s), n_keys
        return None

    def _page(self, at: WindowCycle, now_s: int, windows_max: int) -> list[tuple[WindowId, int]]:
        """Return the next windows of a round, with their key counts."""
        metric, size_s, before_s = at.place
        oldest_s = oldest_scrubbed_s(self._definitions[metric], size_s, now_s)
        found = self._cell_reader.windows_before(metric, size_s, oldest_s, before_s, windows_max)
        at.passed([start_s for start_s, _ in found], windows_max)
        return [(WindowId(metric, size_s, start_s), n_keys) for start_s, n_keys in found]

    def _look_at_newest(self, now_s: int) -> None:
        newest: list[tuple[WindowId, int, Write]] = []
        for _ in range(min(NEWEST_PER_TEND, len(self._newest_looked))):
            metric, size_s, _ = self._newest_looked.place
            self._newest_looked.next_size()
            if found := self._newest(metric, size_s, now_s):
                newest.append((*found, self._bare(found[0], now_s)))
        # If no latest key shows the window, ask for its own key twice. An empty name is a key that
        # the mill's user may not read, and Redis would refuse the whole script.
        asked = [
            (key, write.start)
            for *_, write in newest
            for key in (write.key, write.latest or write.key)
        ]
        seen = self._sizes(asked)
        pairs = zip(newest, seen[::2], seen[1::2], strict=True)
        for (window, n_keys, write), own, latest in pairs:
            has_latest = write.latest is not None and own.fields > 0
            if self._is_odd(window, n_keys, write, own) or (
                has_latest and not shows_latest(own, latest)
            ):
                self._suspects[window] = True

    def _look_at_others(self, now_s: int) -> None:
        """Look for wrong windows, but only after those that are known already were repaired."""
        if self._suspects:
            return
        left = WINDOWS_PER_TEND
        for _ in range(PAGES_PER_TEND):
            page = self._page(self._looked, now_s, left)
            told = [(window, n_keys, self._bare(window, now_s)) for window, n_keys in page]
            seen = self._sizes([(write.key, "") for *_, write in told])
            for (window, n_keys, write), own in zip(told, seen, strict=True):
                if self._is_odd(window, n_keys, write, own):
                    self._suspects.setdefault(window, False)
            left -= len(page)
            if left <= 0 or self._suspects:
                return

    def _is_odd(self, window: WindowId, n_keys: int, write: Write, own: HashFacts) -> bool:
        whole = looks_whole(self._definition(window), window.size_s, n_keys, write, own)
        return not whole and self._settled.get(window) != own

    def _sizes(self, asked: Sequence[tuple[str, str]]) -> list[HashFacts]:
        """Return what Redis reports of keys, each with the start that it should show."""
        if not asked:
            return []
        told = guarded_call(lambda: self._look(args=[part for pair in asked for part in pair]))
        return [HashFacts(*each) for each in json.loads(told)]

    def _bare(self, window: WindowId, now_s: int) -> Write:
        """Return a window's keys, start and expiry, without fields."""
        (write,) = matured([window], self._definitions, now_s)
        return write

    def _next_check(self, now_s: int) -> WindowCheck | None:
        """Return the check of a window that may be wrong, else of the next window; None if there is
        no window.

        Every NEWEST_EVERY-th check is of one of the newest windows or of totals.
        """
        if self._suspects:
            window = next(iter(self._suspects))
            return WindowCheck(window, is_newest=self._suspects.pop(window), is_suspected=True)
        self._checks += 1
        if self._checks % NEWEST_EVERY == 0:
            for _ in range(len(self._newest_checked)):
                metric, size_s, _ = self._newest_checked.place
                self._newest_checked.next_size()
                if found := self._newest(metric, size_s, now_s):
                    return WindowCheck(found[0], is_newest=True)
        for _ in range(len(self._checked)):
            if self._older:
                break
            page = self._page(self._checked, now_s, WINDOWS_PER_PAGE)
            self._older.extend(window for window, _ in page)
        return WindowCheck(self._older.popleft()) if self._older else None

    def _go_on(self, check: WindowCheck, guard: WriterGuard, now_s: int) -> int | None:
        """Check one page; return the number of cells, or None if the guard prevents writing."""
        write = self._bare(check.window, now_s)
        if check.cursor is not None:
            return self._gather(check, write)
        cells = self._cell_reader.cells_page(check.window, check.after, CELLS_PER_PAGE)
        if cells and not self._compare_page(check, write, cells, guard, now_s):
            return None
        if len(cells) == CELLS_PER_PAGE:
            check.after = key_id(cells[-1][1].key)
            return len(cells)
        (own,) = self._sizes([(write.key, "")])
        if own.fields > check.fields and check.unseen is None:
            check.read_again()
            return max(len(cells), CELLS_PER_WINDOW_MIN)
        self._check = None
        if not self._finish(check, write, guard, now_s):
            return None
        self._tell(check, write)
        return max(len(cells), CELLS_PER_WINDOW_MIN)

    def _gather(self, check: WindowCheck, write: Write) -> int:
        options: dict[str, Any] = {NEVER_DECODE: True}
        client: Any = self._client
        asked = ("HSCAN", write.key, check.cursor, "COUNT", CELLS_PER_PAGE)
        cursor, fields = guarded_call(lambda: client.execute_command(*asked, **options))
        assert check.unseen is not None
        check.unseen.update(fields)
        check.cursor = int(cursor) or None
        return len(fields)

    def _compare_page(
        self,
        check: WindowCheck,
        write: Write,
        cells: Sequence[tuple[CellId, Cell]],
        guard: WriterGuard,
        now_s: int,
    ) -> bool:
        expected: dict[str, str] = {}
        for each in writes(cells, self._definitions, now_s):
            expected.update(each.fields)
        if not expected:
            return True
        check.fields += len(expected)
        if check.unseen is not None:
            check.unseen.difference_update(name.encode() for name in expected)
        latest = (write.latest or "") if check.is_newest else ""
        sides = [json.dumps(list(expected)), json.dumps(list(expected.values()))]
        places: Any = guarded_call(lambda: self._compare(args=[write.key, latest, *sides]))
        check.latest_differs |= 0 in places
        pairs = list(expected.items())
        wrong = dict(pairs[place - 1] for place in places if place)
        if not wrong:
            return True
        check.mended.append(f"{len(wrong)} fields missing or wrong")
        return self._send(guard, write, fields=wrong)

    def _finish(self, check: WindowCheck, write: Write, guard: WriterGuard, now_s: int) -> bool:
        """Compare what the pages of a window did not show: surplus fields, ranking, expiry, latest
        key.
        """
        gone = sorted(check.unseen or ())
        if gone:
            check.mended.append(f"{len(gone)} fields too many")
        for begin in range(0, len(gone), FIELDS_PER_CALL):
            if not self._send(guard, write, gone=gone[begin : begin + FIELDS_PER_CALL]):
                return False
        definition = self._definition(check.window)
        ranking: Ranking = ()
        if definition.top is not None:
            ranking = self._cell_reader.ranking(check.window, definition.top)
        if not self._is_ranked(write.key, definition, ranking):
            check.mended.append("ranking")
            if not self._send(guard, write, ranking=ranking):
                return False
        (own,) = self._sizes([(write.key, "")])
        if not expires_rightly(write, own):
            check.mended.append("expiry")
            if not self._send(guard, write):
                return False
        if check.is_newest and own.fields > 0:
            newest = self._newest(check.window.metric, check.window.size_s, now_s)
            if write.latest is not None and newest is not None and newest[0] == check.window:
                return self._finish_latest(check, write, ranking, guard)
        if check.is_suspected and not check.mended:
            if len(self._settled) >= SETTLED_MAX:
                self._settled.clear()
            self._settled[check.window] = own
        return True

    def _finish_latest(
        self, check: WindowCheck, write: Write, ranking: Ranking, guard: WriterGuard
    ) -> bool:
        """Compare the latest key with the window's own key, which is right by now."""
        assert write.latest is not None
        own, latest = self._sizes([(write.key, ""), (write.latest, write.start)])
        is_right = not check.latest_differs and shows_latest(own, latest)
        if is_right and self._is_ranked(write.latest, self._definition(check.window), ranking):
            return True
        check.mended.append("latest")
        return self._send(guard, write, latest=write.latest)

    def _is_ranked(self, key: str, definition: MetricDefinition, ranking: Ranking) -> bool:
        """Tell whether the ranking of a hash equals the given one (no ranking if that is empty)."""
        scores = json.dumps([plain(value) for _, value in ranking])
        return bool(
            guarded_call(lambda: self._ranked(args=[key, ranking_suffix(definition), scores]))
        )

    def _tell(self, check: WindowCheck, write: Write) -> None:
        if not check.mended:
            return
        self.mended_total += 1
        self._logged += 1
        if self._logged <= LOGGED_PER_TEND:
            logger.warning(
                "Redis differed from the stored counts, so %s is written again: %s",
                write.latest if check.mended == ["latest"] else write.key,
                ", ".join(check.mended),
            )

    def _send(
        self,
        guard: WriterGuard,
        write: Write,
        *,
        fields: Mapping[str, str] | None = None,
        gone: Sequence[bytes] = (),
        ranking: Ranking | None = None,
        latest: str = "",
    ) -> bool:
        call = {
            "epoch": str(guard.epoch),
            "expect": guard.seq,
            "key": write.key,
            "expire": write.expire_at_s,
            "fields": [part for pair in (fields or {}).items() for part in pair],
            "replace": ranking is not None,
            "ranking": [
                part for key, value in ranking or () for part in (plain(value), redis_field(key))
            ],
            "latest": latest,
            "start": write.start,
        }
        answer = guarded_call(lambda: self._mend(args=[json.dumps(call), *gone]))
        if answer == "fenced":
            self._cell_reader.check_ours()
            raise SinkUnavailable("redis", "its guard has an epoch that MySQL does not know")
        return bool(answer == "ok")
