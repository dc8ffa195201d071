"""The checker of histories finds every planted fault, and no fault in a correct history."""

import pytest

from tests.harness.checker import Fault, Report, Rules, check
from tests.harness.history import CommitLog, Outcome, Place, ReadLog, SendLog

P0: Place = ("t", 0)
P1: Place = ("t", 1)


class Story:
    """A small history of two producers, a consumer during the run, and consumers at the end. A
    counter is the clock."""

    def __init__(self) -> None:
        self.sends = [SendLog("a"), SendLog("b")]
        self.way = ReadLog("way")
        self.end = ReadLog("end", is_full=True)
        self.committed = ReadLog("committed", is_full=True, is_read_committed=True)
        self.commits = CommitLog("g")
        self.log: dict[Place, list[tuple[int, bytes, bytes | None]]] = {P0: [], P1: []}
        self._now = 0

    def now(self) -> int:
        self._now += 1
        return self._now

    def send(
        self,
        who: int,
        value: bytes,
        offset: int | None = None,
        place: Place = P0,
        *,
        key: bytes | None = None,
        transaction: int = -1,
    ) -> int:
        """Record a send and the stored record. If `offset` is None, there is no acknowledgement and
        no record."""
        log = self.sends[who]
        number = log.invoke(place, value, self.now(), key=key, transaction=transaction)
        if offset is not None:
            log.ok(number, offset, self.now())
            self.stand(offset, value, place, key)
        return number

    def stand(self, offset: int, value: bytes, place: Place = P0, key: bytes | None = None) -> None:
        self.log[place].append((offset, value, key))

    def finish(self, *, start: int = 0, with_committed: bool = False, **rules: bool) -> Report:
        reads = [self.way, self.end]
        if with_committed:
            reads.append(self.committed)
        for place, records in self.log.items():
            self.end.starts[place] = start
            for offset, value, key in sorted(records):
                if offset >= start:
                    self.end.read(place, offset, value, key)
        return check(self.sends, reads, [self.commits], Rules(**rules))


@pytest.fixture
def story() -> Story:
    """Return a correct history: six records of two producers in two partitions."""
    one = Story()
    one.send(0, b"a0", 0)
    one.send(0, b"a1", 1)
    one.send(1, b"b0", 2)
    one.send(1, b"b1", 0, P1)
    one.send(0, b"a2", 3)
    one.send(1, b"b2", 4)
    for offset, value in ((0, b"a0"), (1, b"a1"), (2, b"b0"), (3, b"a2")):
        one.way.read(P0, offset, value)
    return one


def assert_only(report: Report, *faults: Fault) -> None:
    assert set(report.counts) == set(faults), report.text()


def test_a_good_history_has_no_fault(story: Story) -> None:
    report = story.finish()
    assert report.is_clean, report.text()
    assert report.line() == (
        "sent 6, acknowledged 6, unknown 0, standing 6, read 10: "
        "lost 0, doubled 0, reordered 0, collision 0"
    )


def test_lost(story: Story) -> None:
    story.sends[0].ok(story.send(0, b"gone"), 5, story.now())
    assert_only(story.finish(), Fault.LOST)


def test_lost_without_a_known_offset(story: Story) -> None:
    story.sends[0].ok(story.send(0, b"gone"), -1, story.now())
    assert_only(story.finish(), Fault.LOST)


def test_below_the_log_start_nothing_is_lost(story: Story) -> None:
    assert story.finish(start=2).is_clean


def test_without_an_answer_present_or_absent_is_well(story: Story) -> None:
    story.send(0, b"absent")
    story.send(0, b"present")
    story.stand(5, b"present")
    report = story.finish()
    assert report.is_clean, report.text()
    assert report.unknown == 2


def test_doubled(story: Story) -> None:
    story.stand(5, b"a2")
    assert_only(story.finish(), Fault.DOUBLED)


def test_doubled_without_an_answer(story: Story) -> None:
    story.send(0, b"timed out")
    story.stand(5, b"timed out")
    story.stand(6, b"timed out")
    assert_only(story.finish(), Fault.DOUBLED)


def test_a_producer_that_may_double_may_double() -> None:
    one = Story()
    number = one.send(0, b"a0")
    one.stand(0, b"a0")
    one.stand(1, b"a0")
    one.sends[0].ok(number, 1, one.now())
    one.send(0, b"a1", 2)
    assert one.finish(may_double=True).is_clean


def test_reordered_by_acknowledgement(story: Story) -> None:
    first, second = story.send(0, b"first"), story.send(0, b"second")
    for number, offset, value in ((first, 6, b"first"), (second, 5, b"second")):
        story.sends[0].ok(number, offset, story.now())
        story.stand(offset, value)
    assert_only(story.finish(), Fault.REORDERED)


def test_reordered_without_answers(story: Story) -> None:
    story.send(0, b"first")
    story.send(0, b"second")
    story.stand(6, b"first")
    story.stand(5, b"second")
    assert_only(story.finish(), Fault.REORDERED)


def test_back_in_time_between_producers(story: Story) -> None:
    story.send(0, b"early", 6)
    story.send(1, b"late", 5)
    assert_only(story.finish(), Fault.BACK_IN_TIME)


def test_sent_at_the_same_time_any_order_is_well(story: Story) -> None:
    early, late = story.send(0, b"early"), story.send(1, b"late")
    story.sends[0].ok(early, 6, story.now())
    story.sends[1].ok(late, 5, story.now())
    story.stand(6, b"early")
    story.stand(5, b"late")
    assert story.finish().is_clean


def test_phantom(story: Story) -> None:
    story.stand(5, b"who wrote this?")
    assert_only(story.finish(), Fault.PHANTOM)


def test_phantom_of_another_partition(story: Story) -> None:
    story.send(0, b"for one", 1, P1)
    story.stand(5, b"for one", P0)
    assert_only(story.finish(), Fault.PHANTOM)


def test_collision_of_acknowledgements(story: Story) -> None:
    story.sends[0].ok(story.send(0, b"mine"), 5, story.now())
    story.sends[1].ok(story.send(1, b"mine too"), 5, story.now())
    story.stand(5, b"mine")
    assert_only(story.finish(), Fault.COLLISION, Fault.LOST)


def test_collision_of_an_acknowledgement_and_the_log(story: Story) -> None:
    number = story.send(0, b"here")
    story.sends[0].ok(number, 5, story.now())
    story.stand(6, b"here")
    assert_only(story.finish(), Fault.COLLISION)


def test_collision_of_an_early_read_and_the_log(story: Story) -> None:
    story.way.read(P0, 4, b"b1 in disguise")
    story.sends[0].invoke(P0, b"b1 in disguise", story.now())
    assert_only(story.finish(), Fault.COLLISION)


def test_vanished(story: Story) -> None:
    story.way.move(P0)
    story.way.read(P0, 5, b"seen")
    story.send(0, b"seen")
    assert_only(story.finish(), Fault.VANISHED)


def test_wrong_way(story: Story) -> None:
    story.way.read(P0, 1, b"a1")
    assert_only(story.finish(), Fault.WRONG_WAY)


def test_a_reader_may_go_back_when_it_asked_to(story: Story) -> None:
    story.way.move(P0)
    story.way.read(P0, 1, b"a1")
    assert story.finish().is_clean


def test_skipped(story: Story) -> None:
    other = ReadLog("hasty")
    other.read(P0, 0, b"a0")
    other.read(P0, 3, b"a2")
    story.way = other
    assert_only(story.finish(), Fault.SKIPPED)


def test_a_gap_without_records_is_well(story: Story) -> None:
    story.send(0, b"behind a marker", 9)
    story.way.read(P0, 4, b"b2")
    story.way.read(P0, 9, b"behind a marker")
    assert story.finish().is_clean


def test_a_definite_failure_is_never_read(story: Story) -> None:
    story.sends[0].fail(story.send(0, b"refused"))
    story.stand(5, b"refused")
    report = story.finish()
    assert_only(report, Fault.FAILED_READ)


def transactional(end: Outcome, *, visible: int) -> Story:
    """Return a history with two records of one transaction that ended like this. A read_committed
    consumer received `visible` of them."""
    one = Story()
    one.send(0, b"x", 0, transaction=7)
    one.send(0, b"y", 0, P1, transaction=7)
    one.sends[0].end(7, end)
    one.committed.starts = {P0: 0, P1: 0}
    for place, value in ((P0, b"x"), (P1, b"y"))[:visible]:
        one.committed.read(place, 0, value)
    return one


@pytest.mark.parametrize(
    ("end", "visible", "faults"),
    [
        (Outcome.OK, 2, set()),
        (Outcome.FAILED, 0, set()),
        (Outcome.UNKNOWN, 2, set()),
        (Outcome.UNKNOWN, 0, set()),
        (Outcome.OK, 1, {Fault.TORN, Fault.LOST}),
        (Outcome.UNKNOWN, 1, {Fault.TORN}),
        (Outcome.FAILED, 2, {Fault.FAILED_READ}),
        (Outcome.OK, 0, {Fault.LOST}),
    ],
)
def test_transactions(end: Outcome, visible: int, faults: set[Fault]) -> None:
    report = transactional(end, visible=visible).finish(with_committed=True)
    assert set(report.counts) == faults, report.text()


def test_the_same_value_elsewhere_is_no_part_of_a_transaction() -> None:
    one = transactional(Outcome.FAILED, visible=0)
    one.send(1, b"y", 1, P0)
    one.committed.read(P0, 1, b"y")
    assert one.finish(with_committed=True).is_clean


def test_a_compacted_log_keeps_the_last_of_each_key() -> None:
    one = Story()
    for offset, (key, value) in enumerate([(b"k", b"1"), (b"m", b"2"), (b"k", b"3")]):
        one.send(0, value, offset, key=key)
    del one.log[P0][0]
    assert one.finish(is_compacted=True).is_clean
    two = Story()
    for offset, (key, value) in enumerate([(b"k", b"1"), (b"m", b"2"), (b"k", b"3")]):
        two.send(0, value, offset, key=key)
    del two.log[P0][2]
    assert_only(two.finish(is_compacted=True), Fault.STALE_KEY)


def test_committed_offsets_never_go_back(story: Story) -> None:
    log = story.commits
    for offset in (3, 5):
        log.invoke(P0, offset)
        log.ok(P0, offset)
    log.saw(P0, 5)
    assert story.finish().is_clean
    log.saw(P0, 3)
    assert_only(story.finish(), Fault.OFFSET_BACK, Fault.WRONG_WAY)


@pytest.mark.parametrize(
    ("events", "is_well"),
    [
        ([("invoke", 3), ("saw", -1)], True),
        ([("invoke", 3), ("saw", 3)], True),
        ([("invoke", 3), ("saw", 3), ("saw", -1)], False),
        ([("invoke", 3), ("ok", 3), ("saw", -1)], False),
        ([("invoke", 3), ("ok", 3), ("saw", 4)], False),
        ([("invoke", 3), ("ok", 3), ("invoke", 9), ("saw", 9)], True),
    ],
)
def test_commits_in_doubt(story: Story, events: list[tuple[str, int]], is_well: bool) -> None:
    story.commits.events = [(kind, P0, offset) for kind, offset in events]
    assert story.finish().is_clean == is_well


def test_one_value_sent_twice_is_a_fault_of_the_test(story: Story) -> None:
    story.send(1, b"a0", 7)
    with pytest.raises(AssertionError, match="sent twice"):
        story.finish()


def test_a_partition_without_a_reader_is_a_fault_of_the_test(story: Story) -> None:
    story.sends[0].invoke(("unread", 0), b"value", story.now())
    with pytest.raises(AssertionError, match="no reader has read"):
        story.finish()
