"""Old and live lines in one partition: how long live lines wait, and how much old lines are slowed.

The test plays a consumer that reads waiting lines at a fixed rate and commits its progress late.
The collector sends old lines as fast as the windows allow.
"""

from dataclasses import dataclass, field

import pytest

from collector.send.lag_windows import (
    LINES_FIRST,
    LINES_MAX,
    LINES_MIN,
    LIVE_MS,
    NOBODY_MS,
    STANDSTILL_MS,
    LagWindows,
    ReadProgress,
)
from protocol.types import TopicPartition

PLACE = TopicPartition("t", 0)
OLD, LIVE, OTHER = "old", "live", "other"
TICK_MS = 5
ASK_MS = 50
COMMIT_MS = 50
READERS_COMMIT_MS = 100
BLOCK_LINES = 1_000
LIVE_PER_TICK = 5


@dataclass
class Partition:
    """A partition, its consumer, and a collector with one old and one live file."""

    per_s: int
    batch_ms: int
    windows: LagWindows = field(default_factory=LagWindows)
    now_ms: int = 0
    handed_out: int = 0
    end: int = 0
    read: int = 0
    committed: int = 0
    old: int = 0
    answer: dict[TopicPartition, ReadProgress] | None = None
    live_at: list[tuple[int, int]] = field(default_factory=list)
    waits_ms: list[int] = field(default_factory=list)
    batch: tuple[int, int] | None = None
    """The end time and the end offset of the batch that the consumer is processing."""

    def hand_out(self, lines: int) -> None:
        self.windows.handed_out(PLACE, lines)
        self.handed_out += lines

    def tick(self, *, has_old: bool, has_live: bool) -> None:
        self.now_ms += TICK_MS
        if has_live:
            self.hand_out(LIVE_PER_TICK)
            self.windows.wrote_live(PLACE, LIVE, self.now_ms)
            self.live_at.append((self.now_ms, self.handed_out))
        if has_old and self.windows.may_go_on(PLACE, OLD, self.now_ms):
            self.hand_out(BLOCK_LINES)
            self.old += BLOCK_LINES
        if self.now_ms % COMMIT_MS == 0:
            self.windows.settled(PLACE, self.handed_out - self.end)
            self.end = self.handed_out
        self.take_batch()
        if self.now_ms % READERS_COMMIT_MS == 0:
            self.committed = self.read
        if self.answer is not None and self.now_ms % ASK_MS == TICK_MS:
            self.windows.told(self.answer, self.now_ms)
            self.answer = None
        if self.now_ms % ASK_MS == 0 and self.windows.to_ask(self.now_ms):
            self.windows.asked([PLACE], self.now_ms)
            self.answer = {PLACE: ReadProgress(self.committed, self.end)}

    def take_batch(self) -> None:
        if self.batch is not None and self.now_ms >= self.batch[0]:
            self.read, self.batch = self.batch[1], None
            while self.live_at and self.live_at[0][1] <= self.read:
                self.waits_ms.append(self.now_ms - self.live_at.pop(0)[0])
        if self.batch is None and self.end > self.read:
            takes_ms = self.batch_ms + (self.end - self.read) * 1_000 // self.per_s
            self.batch = (self.now_ms + takes_ms, self.end)


def percentile(waits_ms: list[int], share: float) -> int:
    return sorted(waits_ms)[int(len(waits_ms) * share)]


@pytest.mark.parametrize(("per_s", "batch_ms"), [(20_000, 100), (50_000, 60), (200_000, 40)])
def test_live_lines_wait_less_than_a_second_and_old_ones_go_on(per_s: int, batch_ms: int) -> None:
    partition = Partition(per_s, batch_ms)
    seconds = 60
    for tick in range(seconds * 1_000 // TICK_MS):
        partition.tick(has_old=tick * TICK_MS >= 1_000, has_live=True)
    assert percentile(partition.waits_ms, 0.99) <= 800
    assert max(partition.waits_ms) <= 1_100, "also before the reader's pace is known"
    assert partition.old / seconds >= 0.5 * per_s


def test_old_lines_alone_are_held_back_by_nothing() -> None:
    windows = LagWindows()
    windows.handed_out(PLACE, 5_000_000)
    assert windows.may_go_on(PLACE, OLD, 0)
    assert windows.to_ask(0) == [], "and no broker is asked anything"


def test_a_file_does_not_wait_for_lines_of_its_own() -> None:
    windows = LagWindows()
    windows.wrote_live(PLACE, OLD, 1_000)
    windows.wrote_live(PLACE, OLD, 2_000)
    assert windows.may_go_on(PLACE, OLD, 2_000)
    windows.wrote_live(PLACE, LIVE, 2_000)
    windows.wrote_live(PLACE, OLD, 3_000)
    windows.wrote_live(PLACE, OLD, 4_000)
    assert not windows.may_go_on(PLACE, OLD, 4_000)


def test_a_partition_is_kept_free_for_a_while_behind_the_last_live_line() -> None:
    windows = LagWindows()
    windows.wrote_live(PLACE, LIVE, 1_000)
    windows.wrote_live(PLACE, OTHER, 1_500)
    assert not windows.may_go_on(PLACE, OLD, 1_499 + LIVE_MS)
    assert windows.to_ask(1_499 + LIVE_MS) == [PLACE]
    assert windows.may_go_on(PLACE, OLD, 1_500 + LIVE_MS)


def told(windows: LagWindows, progress: ReadProgress, now_ms: int) -> None:
    windows.asked([PLACE], now_ms)
    windows.told({PLACE: progress}, now_ms)


def live(windows: LagWindows, now_ms: int) -> None:
    windows.wrote_live(PLACE, LIVE, now_ms)


def test_without_a_reader_a_file_waits_only_for_a_first_batch() -> None:
    windows = LagWindows()
    windows.handed_out(PLACE, 9_000_000)
    for now_ms in range(0, NOBODY_MS, 500):
        live(windows, now_ms)
        assert not windows.may_go_on(PLACE, OLD, now_ms)
        told(windows, ReadProgress(None, 9_000_000), now_ms)
    assert windows.may_go_on(PLACE, OLD, NOBODY_MS)


def test_lines_on_their_way_count_and_those_that_are_read_do_not() -> None:
    windows = LagWindows()
    live(windows, 0)
    windows.handed_out(PLACE, 400)
    windows.settled(PLACE, 400)
    assert not windows.may_go_on(PLACE, OLD, 0)
    told(windows, ReadProgress(100, 400), 0)
    windows.handed_out(PLACE, LINES_FIRST - 301)
    assert windows.may_go_on(PLACE, OLD, 10)
    windows.handed_out(PLACE, 1)
    assert not windows.may_go_on(PLACE, OLD, 20)
    told(windows, ReadProgress(101, 400), 30)
    assert windows.may_go_on(PLACE, OLD, 40)


@pytest.mark.parametrize("has_answers", [True, False])
def test_a_reader_that_stands_still_is_waited_for_and_then_not(has_answers: bool) -> None:
    windows = LagWindows()
    now_ms = 0
    went_on_ms = None
    while went_on_ms is None:
        now_ms += 500
        live(windows, now_ms)
        if windows.may_go_on(PLACE, OLD, now_ms):
            went_on_ms = now_ms
        if has_answers:
            told(windows, ReadProgress(0, 1_000_000), now_ms)
    assert went_on_ms == 500 + STANDSTILL_MS
    told(windows, ReadProgress(10, 1_000_000), now_ms)
    told(windows, ReadProgress(11, 1_000_000), now_ms)
    assert not windows.may_go_on(PLACE, OLD, now_ms), "and a reader that moves again is"


@pytest.mark.parametrize(("takes_ms", "lines"), [(100, LINES_MAX), (5_000, LINES_MIN)])
def test_a_window_has_bounds(takes_ms: int, lines: int) -> None:
    windows = LagWindows()
    now_ms = end = 0
    for _ in range(40):
        now_ms += takes_ms
        live(windows, now_ms)
        told(windows, ReadProgress(end, end), now_ms)
        room = 0
        while room <= LINES_MAX and windows.may_go_on(PLACE, OLD, now_ms):
            windows.handed_out(PLACE, 1_000)
            windows.settled(PLACE, 1_000)
            room += 1_000
        end += room
        told(windows, ReadProgress(end - room, end), now_ms)
        for waited_ms in range(0, takes_ms, 100):
            windows.may_go_on(PLACE, OLD, now_ms + waited_ms)
    assert room == pytest.approx(lines, abs=1_000)
