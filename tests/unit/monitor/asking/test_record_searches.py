"""Finding the timestamp of the record that a stalled reader must read next, in logs built batch by
batch."""

import asyncio
from typing import Any

from monitor.asking.record_times import LOOKUPS_OF_PLACE_MAX, RecordTimes
from monitor.state.reading import Commit, GroupReading
from protocol.client.fetch_core import IsolationLevel
from protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.types import TopicPartition
from protocol.wire.record import Marker, NewRecord, marker_record
from protocol.wire.records import (
    Codec,
    assemble_batch,
    build_batch,
    iterate_batches,
    stamp_control,
    stamp_log_append_time,
)
from tests.unit.monitor.readings import row

WRITTEN_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class Log:
    """One partition that returns whole batches as a broker does. It returns only batches below the
    last stable offset."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.last_stable_offset: int | None = None
        self.aborted: list[AbortedTransaction] = []
        self.batches_a_fetch = 1_000
        self.fetches = 0

    def append(self, *written_ms: int, **options: Any) -> bytearray:
        """Append one batch with a record for each timestamp."""
        records = [NewRecord(b"k", b"line", at_ms) for at_ms in written_ms]
        batch = build_batch(records, base_offset=self.end, **options)
        self.add(batch, len(records))
        return batch

    def add(self, batch: bytearray, offsets: int) -> None:
        """Append a batch that uses this number of offsets."""
        self.batches.append(batch)  # type: ignore[arg-type]
        self.end += offsets

    def marker(self, producer_id: int, *, is_commit: bool = True, at_ms: int = WRITTEN_MS) -> None:
        """Append the marker that ends a transaction."""
        batch = build_batch(
            [marker_record(Marker(is_commit, 0), at_ms)],
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0,
            is_transactional=True,
        )
        stamp_control(batch)
        self.add(batch, 1)

    async def leader(self, tp: TopicPartition) -> int:
        return 1

    async def request(self, node_id: int | None, message: FetchRequest) -> Any:
        self.fetches += 1
        part = message.topics[0].partitions[0]
        end = self.end
        if message.isolation_level == IsolationLevel.READ_COMMITTED:
            end = self.end if self.last_stable_offset is None else self.last_stable_offset
        given = []
        for batch in self.batches:
            ((header, _),) = iterate_batches(batch)
            if header.last_offset >= part.fetch_offset and header.base_offset < end:
                given.append(bytes(batch))
        data = PartitionData(
            partition_index=part.partition,
            records=b"".join(given[: self.batches_a_fetch]),
            aborted_transactions=self.aborted,
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


class Cycles:
    """A group that has committed `offset` and makes no progress."""

    def __init__(self, log: Log, offset: int) -> None:
        self._log, self._offset = log, offset
        self._times = RecordTimes()
        self.look()

    def look(self) -> int | str | None:
        """Return the timestamp of the record that the group must read next. Return "markers" if
        only markers follow, and None if the timestamp is unknown."""
        group = GroupReading("g", "Empty", (), {row(0): Commit(self._offset)})
        found = asyncio.run(
            self._times.read(self._log, [group], {"g"}, {row(0): 0}, {row(0): self._log.end})
        )
        place = (row(0), self._offset)
        return "markers" if place in self._times.only_markers else found.get(place)


def test_inside_a_batch_the_record_counts_at_which_the_reader_stands() -> None:
    for codec in (Codec.NONE, Codec.GZIP):
        log = Log()
        log.append(WRITTEN_MS, WRITTEN_MS + HOUR_MS, codec=codec)
        assert Cycles(log, 1).look() == WRITTEN_MS + HOUR_MS
        assert Cycles(log, 0).look() == WRITTEN_MS


def test_a_batch_whose_header_names_another_time_than_its_first_record() -> None:
    """Compaction can remove the first records of a batch but keeps the base timestamp in its
    header. So the timestamp must be read from the record."""
    log = Log()
    source = build_batch([NewRecord(b"k", b"v", WRITTEN_MS), NewRecord(b"k", b"v", WRITTEN_MS + 9)])
    payload = bytes(source[61 + len(source[61:]) // 2 :])
    batch = assemble_batch(
        payload, record_count=1, base_timestamp_ms=WRITTEN_MS, max_timestamp_ms=WRITTEN_MS + 9
    )
    log.add(batch, 2)
    assert Cycles(log, 0).look() == WRITTEN_MS + 9


def test_under_log_append_time_the_brokers_clock_counts() -> None:
    log = Log()
    batch = log.append(1_000, 2_000)
    stamp_log_append_time(batch, WRITTEN_MS)
    assert Cycles(log, 0).look() == WRITTEN_MS
    assert Cycles(log, 1).look() == WRITTEN_MS


def test_a_marker_is_no_record_that_waits() -> None:
    log = Log()
    log.append(WRITTEN_MS, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.marker(7)
    cycles = Cycles(log, 1)
    assert cycles.look() == "markers"
    assert cycles.look() == "markers"
    assert log.fetches == 1, "nothing has come since"
    log.append(WRITTEN_MS + HOUR_MS)
    assert cycles.look() == WRITTEN_MS + HOUR_MS
    assert cycles.look() == WRITTEN_MS + HOUR_MS
    assert log.fetches == 2


def test_records_of_an_aborted_transaction_are_none_that_wait() -> None:
    log = Log()
    log.append(WRITTEN_MS, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.marker(7, is_commit=False)
    log.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    assert Cycles(log, 0).look() == "markers"
    log.append(WRITTEN_MS + HOUR_MS)
    assert Cycles(log, 0).look() == WRITTEN_MS + HOUR_MS


def test_a_record_of_an_open_transaction_waits_until_the_transaction_aborts() -> None:
    log = Log()
    log.append(WRITTEN_MS, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.last_stable_offset = 0
    cycles = Cycles(log, 0)
    assert cycles.look() == WRITTEN_MS
    assert cycles.look() == WRITTEN_MS
    log.marker(7, is_commit=False)
    log.last_stable_offset = None
    log.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    assert cycles.look() == "markers"


def test_more_markers_than_one_cycle_goes_through() -> None:
    log = Log()
    log.batches_a_fetch = 1
    for _ in range(LOOKUPS_OF_PLACE_MAX + 3):
        log.marker(7)
    log.append(WRITTEN_MS + HOUR_MS)
    cycles = Cycles(log, 0)
    assert cycles.look() is None, "not known yet, and not said to be nothing"
    assert cycles.look() == WRITTEN_MS + HOUR_MS
    assert log.fetches == LOOKUPS_OF_PLACE_MAX + 4


def test_a_batch_that_cannot_be_opened_has_no_known_time_and_is_read_once() -> None:
    log = Log()
    log.add(
        assemble_batch(
            b"this is no record", record_count=1, base_timestamp_ms=1, max_timestamp_ms=1
        ),
        1,
    )
    cycles = Cycles(log, 0)
    assert cycles.look() is None
    assert cycles.look() is None
    assert log.fetches == 1
